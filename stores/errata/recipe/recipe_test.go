package recipe_test

import (
	_ "embed"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/stores/errata/recipe"
)

// sample has every section.
//
//go:embed testdata/sample.md
var sample string

func mustParse(t *testing.T, text string) *recipe.Recipe {
	t.Helper()
	r, err := recipe.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func mustDecode(t *testing.T, data []byte) *recipe.Recipe {
	t.Helper()
	r, err := recipe.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestParse(t *testing.T) {
	r := mustParse(t, sample)
	want := &recipe.Recipe{
		Version: 1, Name: "Sample", Models: []string{"gpt-5", "claude"}, SystemPrompt: "Be brief.\n\nBe right.",
		Tools: &recipe.Tools{Allowlist: []string{"read_file", "bash", "web_fetch"}, BashPrefixes: []string{"go test", "go vet"},
			Guidance: map[string]string{"read_file": "Only: when needed.", "bash": "Describe it."}},
		MCPServers:          []recipe.MCPServer{{Name: "files", Command: "npx server --root ."}},
		Constraints:         recipe.Constraints{Timeout: 90 * time.Second, BashTimeout: 2 * time.Minute, ProjectRoot: "/srv"},
		Context:             recipe.Context{MaxHistoryTurns: 20, Strategy: "auto_compact", CompactThreshold: 0.8, TaskMode: "sequential"},
		Sandbox:             recipe.Sandbox{Filesystem: "project_only", Network: "none", AllowLocalFetch: true},
		Tasks:               []string{"one"},
		SuccessCriteria:     []string{"it works"},
		ToolDescriptions:    map[string]string{"bash": "Runs."},
		SummarizationPrompt: "Summarize.",
		OutputProcessing:    map[string]recipe.OutputRule{"bash": {MaxLines: 50, Truncation: "tail"}},
	}
	if diff := cmp.Diff(want, r); diff != "" {
		t.Error(diff)
	}
	for name, again := range map[string]*recipe.Recipe{"cloned": r.Clone(), "written and read": mustDecode(t, r.Encode())} {
		if diff := cmp.Diff(want, again); diff != "" {
			t.Errorf("%s: got %s", name, diff)
		}
	}
	normal := r.Markdown()
	for _, line := range []string{"# Sample\nversion: 1\n", "\n## Tools\n- read_file: Only: when needed.\n- bash(go test, go vet): Describe it.\n- web_fetch\n", "timeout: 1m30s\n", "compact_threshold: 0.8\n"} {
		if !strings.Contains(normal, line) {
			t.Errorf("%q is missing in %s", line, normal)
		}
	}
	if again := mustParse(t, normal).Markdown(); again != normal {
		t.Errorf("the normal form of the normal form differs:\n%s\n%s", normal, again)
	}
	if empty := mustParse(t, "version: 1\n## Tools\n"); empty.Tools == nil || len(empty.Tools.Allowlist) != 0 || mustParse(t, "version: 1").Tools != nil {
		t.Error("no tools and all tools have the same normal form")
	}
	for _, text := range []string{"", "# x\n", "version: x", "version: 0", "version: 2", "## Tools\nversion: 1"} {
		_, err := recipe.Parse([]byte(text))
		if _, ok := errors.AsType[*recipe.Error](err); !ok {
			t.Errorf("%q: got the error %v", text, err)
		}
	}
}

// The original's own recipe, if it is on the machine.
func TestParseDefault(t *testing.T) {
	text, err := os.ReadFile(testkit.Data(t, "errata", "default.recipe.md"))
	if err != nil {
		t.Fatal(err)
	}
	r := mustParse(t, string(text))
	if r.Name != "Errata Default" || r.Constraints.Timeout != 5*time.Minute || r.Context.CompactThreshold != 0.8 || len(r.Tools.Allowlist) != 9 || len(r.Tools.Guidance) != 9 ||
		r.Sandbox.Network != "full" || !strings.HasPrefix(r.SummarizationPrompt, "Summarize") || !strings.Contains(r.Tools.Guidance["search_files"], `search_files("**/*.go")`) {
		t.Errorf("got %+v", r)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(sample)
	f.Add("version: 1\n## Tools\n- bash(")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := recipe.Parse([]byte(text))
		if err != nil {
			return
		}
		r.Snapshot(nil)
		normal, err := recipe.Parse([]byte(r.Markdown()))
		if err != nil {
			t.Fatalf("parse the normal form: %v", err)
		}
		if normal.Markdown() != r.Markdown() || normal.Hash() != r.Hash() {
			t.Errorf("the normal form of the normal form differs:\n%s\n%s", normal.Markdown(), r.Markdown())
		}
	})
}

// A configuration has the same hash in every spelling; another configuration has another hash.
func TestTextHash(t *testing.T) {
	hash := mustParse(t, sample).Hash()
	for name, text := range map[string]string{
		"as it is":       sample,
		"normal form":    mustParse(t, sample).Markdown(),
		"other models":   strings.Replace(sample, "- gpt-5", "- gpt-6", 1),
		"other spelling": strings.NewReplacer("timeout: 90\n", "timeout: 1m30s\n", "0.80", "0.8", "allow_local_fetch: TRUE", "allow_local_fetch: true").Replace(sample),
		"other order":    strings.Replace(sample, "## Tasks\n- one\n", "", 1) + "\n## Tasks\n- one\n",
	} {
		if have := recipe.TextHash([]byte(text)); have != hash {
			t.Errorf("%s: got %s, want %s", name, have, hash)
		}
	}
	for name, text := range map[string]string{
		"other name": strings.Replace(sample, "# Sample", "# Other", 1), "other prompt": strings.Replace(sample, "Be brief.", "Be long.", 1), "no recipe": "sample", "nothing": "",
	} {
		if have := recipe.TextHash([]byte(text)); have == hash || !strings.HasPrefix(have, "rcp_") || len(have) != len(hash) {
			t.Errorf("%s: another configuration has the same hash %s", name, have)
		}
	}
}
