package ailoopdir_test

import (
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/layouttest"
	"github.com/tallylog/tally/internal/testkit/logtest"
	"github.com/tallylog/tally/stores/ailoop/ailoopdir"
)

func TestMain(m *testing.M) {
	testkit.CollectLess()
	goleak.VerifyTestMain(m)
}

func openStore(t testing.TB) *tally.Store {
	t.Helper()
	st, err := tally.Open(t.Context(), logtest.Open(t), tally.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// writeFile writes a file into a new folder.
func writeFile(t testing.TB, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	rewrite(t, path, content)
	return path
}

func rewrite(t testing.TB, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func mustImport(t testing.TB, st *tally.Store, path string, o layouts.ImportOptions) layouts.Report {
	t.Helper()
	r, err := (ailoopdir.Layout{}).Import(t.Context(), st, path, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// mustBeClean imports a file without problems.
func mustBeClean(t testing.TB, st *tally.Store, path string) layouts.Report {
	t.Helper()
	r := mustImport(t, st, path, layouts.ImportOptions{})
	layouttest.MustBeClean(t, r)
	return r
}

// exported returns all files of an export.
func exported(t testing.TB, st *tally.Store) (map[string]string, layouts.Report) {
	t.Helper()
	return layouttest.Exported(t, st, ailoopdir.Layout{})
}

// wantFile checks that an export has exactly one file, with this content.
func wantFile(t testing.TB, st *tally.Store, name, content string) layouts.Report {
	t.Helper()
	files, r := exported(t, st)
	if have, ok := files[name]; !ok || have != content || len(files) != 1 {
		t.Errorf("exported %q, want %s\n%q", files, name, content)
	}
	return r
}

func sessionOf(t testing.TB, st *tally.Store, id string) int {
	t.Helper()
	s, err := st.Session(id).Load(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	return len(s.Threads.Turns(events.MainThread))
}
