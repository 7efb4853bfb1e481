package taverndir_test

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/layouttest"
	"github.com/tallylog/tally/internal/testkit/logtest"
	"github.com/tallylog/tally/stores/tavern/taverndir"
)

func TestMain(m *testing.M) {
	testkit.CollectLess()
	goleak.VerifyTestMain(m)
}

func openStore(t testing.TB) *tally.Store {
	t.Helper()
	return need(tally.Open(t.Context(), logtest.Open(t), tally.Config{}))
}

func need[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// folder writes files into a new folder with a name, and returns it.
func folder(t testing.TB, name string, files map[string]string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	write(t, dir, files)
	return dir
}

func write(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		full := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func imported(t testing.TB, st *tally.Store, dir string, o layouts.ImportOptions) layouts.Report {
	t.Helper()
	r, err := (taverndir.Layout{}).Import(t.Context(), st, dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// wantFiles compares the exported files of a store, except those named in but.
func wantFiles(t testing.TB, st *tally.Store, want map[string]string, but ...string) {
	t.Helper()
	want = maps.Clone(want)
	for _, name := range but {
		delete(want, name)
	}
	have, r := layouttest.Exported(t, st, taverndir.Layout{})
	for name, content := range want {
		if have[name] != content {
			t.Errorf("the file %s is %q, want %q", name, have[name], content)
		}
	}
	for name := range have {
		if _, ok := want[name]; !ok {
			t.Errorf("got the unexpected file %s: %q", name, have[name])
		}
	}
	if len(r.Problems) > 0 {
		t.Errorf("got the problems %+v", r.Problems)
	}
}

const (
	id1 = "8f14e45f-ceea-467f-a0e6-6c1b1b1f1b1f"
	id2 = "1ec953f9-b3f7-5665-8ee1-0a1a29774d28"
)

// node returns the node file of an agent.
func node(id, name, state string) string {
	return "---\nid: " + strings.ToUpper(id) + "\nstate: " + state + "\ntitle: " + name + "\n---\n\n## Assignment\n\nBoil.\n\n## Commitments\n\n- ⏳ **It boils**\n  - Assertion: `true`\n"
}

const servitor = "---\nname: Fix\nid: " + id2 + "\nassignment: \"do: it\"\nsession_mode: plan\ncreated_at: 2026-08-22T10:00:00Z\nupdated_at: 2026-08-22T10:00:00Z\n---\n\n## MCP Servers\n\n```json\n{}\n```\n"
