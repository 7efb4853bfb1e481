package tally_test

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tallylog/tally"
)

// recipeText has every section.
const recipeText = `# Sample
version: 1

## Models
- gpt-5
- claude

## System Prompt
Be brief.

Be right.

## Tools
- read_file: Only: when needed.
- bash(go test, go vet): Describe it.
- web_fetch

## MCP Servers
- files: npx server --root .

## Constraints
timeout: 90
bash_timeout: 2m
max_steps: 0
project_root: /srv

## Context
max_history_turns: 20
strategy: auto_compact
compact_threshold: 0.80
task_mode: sequential

## Sandbox
filesystem: project_only
network: none
allow_local_fetch: TRUE

## Tasks
- one

## Success Criteria
- it works

## Tool Descriptions
### bash
Runs.

## Context Summarization Prompt
Summarize.

## Output Processing
### bash
max_lines: 50
truncation: tail

## Hooks
- of some other time
`

func mustParse(t *testing.T, text string) *tally.Recipe {
	t.Helper()
	r, err := tally.ParseRecipe([]byte(text))
	must(t, err)
	return r
}

func TestRecipeParse(t *testing.T) {
	r := mustParse(t, recipeText)
	wantEqual(t, "recipe", r, &tally.Recipe{
		Version: 1, Name: "Sample", Models: []string{"gpt-5", "claude"}, SystemPrompt: "Be brief.\n\nBe right.",
		Tools: &tally.RecipeTools{Allowlist: []string{"read_file", "bash", "web_fetch"}, BashPrefixes: []string{"go test", "go vet"},
			Guidance: map[string]string{"read_file": "Only: when needed.", "bash": "Describe it."}},
		MCPServers:          []tally.RecipeMCPServer{{Name: "files", Command: "npx server --root ."}},
		Constraints:         tally.RecipeConstraints{Timeout: 90 * time.Second, BashTimeout: 2 * time.Minute, ProjectRoot: "/srv"},
		Context:             tally.RecipeContext{MaxHistoryTurns: 20, Strategy: "auto_compact", CompactThreshold: 0.8, TaskMode: "sequential"},
		Sandbox:             tally.RecipeSandbox{Filesystem: "project_only", Network: "none", AllowLocalFetch: true},
		Tasks:               []string{"one"},
		SuccessCriteria:     []string{"it works"},
		ToolDescriptions:    map[string]string{"bash": "Runs."},
		SummarizationPrompt: "Summarize.",
		OutputProcessing:    map[string]tally.RecipeOutputRule{"bash": {MaxLines: 50, Truncation: "tail"}},
	})
	normal := r.Markdown()
	for _, line := range []string{"# Sample\nversion: 1\n", "\n## Tools\n- read_file: Only: when needed.\n- bash(go test, go vet): Describe it.\n- web_fetch\n", "timeout: 1m30s\n", "compact_threshold: 0.8\n"} {
		if !strings.Contains(normal, line) {
			t.Errorf("%q is not in %s", line, normal)
		}
	}
	if again := mustParse(t, normal).Markdown(); again != normal {
		t.Errorf("the normal form changes:\n%s\n%s", normal, again)
	}
	if empty := mustParse(t, "version: 1\n## Tools\n"); empty.Tools == nil || len(empty.Tools.Allowlist) != 0 || mustParse(t, "version: 1").Tools != nil {
		t.Error("no tools and all tools look alike")
	}
	for _, text := range []string{"", "# x\n", "version: x", "version: 0", "version: 2", "## Tools\nversion: 1"} {
		_, err := tally.ParseRecipe([]byte(text))
		if _, ok := errors.AsType[*tally.RecipeError](err); !ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// The recipe that the original brings along, where it is on the machine.
func TestRecipeParseDefault(t *testing.T) {
	text, err := os.ReadFile("../shared/data/errata/default.recipe.md")
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("no recorded data beside the repository: %v", err)
	}
	must(t, err)
	r := mustParse(t, string(text))
	if r.Name != "Errata Default" || r.Constraints.Timeout != 5*time.Minute || r.Context.CompactThreshold != 0.8 || len(r.Tools.Allowlist) != 9 || len(r.Tools.Guidance) != 9 ||
		r.Sandbox.Network != "full" || !strings.HasPrefix(r.SummarizationPrompt, "Summarize") || !strings.Contains(r.Tools.Guidance["search_files"], `search_files("**/*.go")`) {
		t.Errorf("%+v", r)
	}
}

func FuzzParseRecipe(f *testing.F) {
	f.Add(recipeText)
	f.Add("version: 1\n## Tools\n- bash(")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := tally.ParseRecipe([]byte(text))
		if err != nil {
			return
		}
		r.Hash()
		r.Snapshot(nil)
		if _, err := tally.ParseRecipe([]byte(r.Markdown())); err != nil {
			t.Errorf("the normal form cannot be read: %v", err)
		}
	})
}

func newErrata(t *testing.T, st *tally.Store, o tally.ErrataOptions) *tally.ErrataStore {
	t.Helper()
	e, err := tally.NewErrataStore(t.Context(), st, o)
	must(t, err)
	return e
}

func TestPanelRecipes(t *testing.T) {
	eachBackend(t, func(t *testing.T, st *tally.Store) {
		ctx := t.Context()
		t.Run("E-28 session recipe, else base", func(t *testing.T) {
			base := mustParse(t, recipeText)
			e := newErrata(t, st, tally.ErrataOptions{SessionID: "e28", Recipe: base})
			base.Name, base.Tools.Guidance["bash"] = "changed", "changed"
			e.BaseRecipe().Tools.Allowlist[0] = "changed"
			wantEqual(t, "base", e.BaseRecipe(), mustParse(t, recipeText))
			if r, err := e.SessionRecipe(ctx); r != nil || err != nil {
				t.Errorf("%+v, %v", r, err)
			}
			active, err := e.ActiveRecipe(ctx)
			must(t, err)
			wantEqual(t, "active", active, mustParse(t, recipeText))
			other := mustParse(t, recipeText)
			other.Name, other.Models = "Other\n## odd", nil
			must(t, e.SetSessionRecipe(ctx, other))
			active, err = newErrata(t, st, tally.ErrataOptions{SessionID: "e28", Recipe: base}).ActiveRecipe(ctx)
			must(t, err)
			wantEqual(t, "active", active, other)
			must(t, e.SetSessionRecipe(ctx, nil))
			if r, err := e.SessionRecipe(ctx); r != nil || err != nil {
				t.Errorf("%+v, %v", r, err)
			}
		})
		t.Run("E-29 hashes", func(t *testing.T) {
			r := mustParse(t, recipeText)
			e := newErrata(t, st, tally.ErrataOptions{SessionID: "e29", Recipe: r})
			if hash, err := e.RecipeHash(ctx); hash != "" || err != nil {
				t.Errorf("without a store: %q, %v", hash, err)
			}
			if hash, err := newErrata(t, st, tally.ErrataOptions{SessionID: "e29", RecipeStore: st.Recipes()}).RecipeHash(ctx); hash != "" || err != nil {
				t.Errorf("without a recipe: %q, %v", hash, err)
			}
			e = newErrata(t, st, tally.ErrataOptions{SessionID: "e29", Recipe: r, RecipeStore: st.Recipes()})
			hash, err := e.RecipeHash(ctx)
			must(t, err)
			r.Models = []string{"other"}
			if again := r.Hash(); again != hash || !strings.HasPrefix(hash, "rcp_") || len(hash) != 68 {
				t.Errorf("%q and %q", hash, again)
			}
			r.Constraints.MaxSteps = 3
			if r.Hash() == hash {
				t.Error("another configuration has the same hash")
			}
			snap := r.Snapshot([]string{"bash"})
			if h := snap.ConfigHash(); !strings.HasPrefix(h, "cfg_v1_") {
				t.Error(h)
			}
			second := snap
			second.Name = "other"
			if snap.ConfigHash() != second.ConfigHash() || snap.VersionedHash() == second.VersionedHash() || !strings.HasPrefix(snap.VersionedHash(), "rcp_v1_") {
				t.Error("the name is part of the second generation only")
			}
		})
		t.Run("E-30 names", func(t *testing.T) {
			lookup := newErrata(t, st, tally.ErrataOptions{SessionID: "e30", RecipeStore: st.Recipes()}).RecipeNameLookup()
			named, err := st.Recipes().Put(ctx, []byte(recipeText))
			must(t, err)
			unnamed, err := st.Recipes().Put(ctx, []byte("version: 1\n"))
			must(t, err)
			broken, err := st.Recipes().Put(ctx, []byte("no recipe"))
			must(t, err)
			snap, err := st.Recipes().PutSnapshot(ctx, tally.RecipeSnapshot{Version: 1, Name: "old"})
			must(t, err)
			must(t, st.Recipes().PutAs(ctx, "cfg_v0_1", []byte(`{"name":"oldest"}`)))
			must(t, st.Recipes().PutAs(ctx, "cfg_v0_2", []byte(`null`)))
			for hash, want := range map[string]string{named: "Sample", unnamed: "default", broken: "", snap: "old", "cfg_v0_1": "oldest", "cfg_v0_2": "", "rcp_none": "", "": ""} {
				if name, err := lookup(ctx, hash); name != want || err != nil {
					t.Errorf("%q is %q, %v", hash, name, err)
				}
			}
			if name, err := newErrata(t, st, tally.ErrataOptions{SessionID: "e30"}).RecipeNameLookup()(ctx, named); name != "" || err != nil {
				t.Errorf("without a store: %q, %v", name, err)
			}
		})
		t.Run("E-31 the first text is kept", func(t *testing.T) {
			first := strings.Replace(recipeText, "# Sample", "# Kept", 1)
			hash, err := st.Recipes().Put(ctx, []byte(first))
			must(t, err)
			again, err := st.Recipes().Put(ctx, []byte(strings.Replace(first, "- gpt-5", "- gpt-6", 1)))
			must(t, err)
			text, err := st.Recipes().Get(ctx, hash)
			if err != nil || again != hash || string(text) != first {
				t.Errorf("%q, %q, %s, %v", hash, again, text, err)
			}
			hashes, err := st.Recipes().HashesForName(ctx, "Kept")
			must(t, err)
			list, err := st.Recipes().List(ctx)
			if err != nil || len(hashes) != 1 || hashes[0] != hash || list[hash] == nil {
				t.Errorf("%v, %v, %v", hashes, list, err)
			}
			if _, err := st.Recipes().Get(ctx, "rcp_none"); !errors.Is(err, tally.ErrNotFound) {
				t.Error(err)
			}
		})
		t.Run("E-39 the recipe's snapshot", func(t *testing.T) {
			e := newErrata(t, st, tally.ErrataOptions{SessionID: "e39r"})
			snap, err := e.BuildRecipeSnapshot(ctx)
			must(t, err)
			wantEqual(t, "without a recipe", toJSON(t, snap), `{"name":"default"}`)
			must(t, e.SetLastActiveTools(ctx, []string{"bash"}))
			must(t, e.SetSessionRecipe(ctx, mustParse(t, recipeText)))
			snap, err = e.BuildRecipeSnapshot(ctx)
			must(t, err)
			wantEqual(t, "with one", toJSON(t, snap), `{"version":1,"name":"Sample","system_prompt":"Be brief.\n\nBe right.","tool_guidance":{"bash":"Describe it.","read_file":"Only: when needed."},`+
				`"tools":["bash"],"bash_prefixes":["go test","go vet"],"tool_descriptions":{"bash":"Runs."},"constraints":{"timeout":"1m30s"},`+
				`"context":{"max_history_turns":20,"strategy":"auto_compact","compact_threshold":0.8,"task_mode":"sequential"},"output_processing":{"bash":{"max_lines":50,"truncation":"tail"}},"summarization_prompt":"Summarize."}`)
		})
	})
}
