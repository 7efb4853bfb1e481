package tallydir_test

import (
	"path/filepath"
	"testing"

	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/testkit"
)

// Every file of recorded folders is exported as it was imported.
func TestRealFolders(t *testing.T) {
	for _, c := range []struct {
		name  string
		want  layouts.Files
		turns int
	}{
		{"travel", layouts.Files{Exact: 5, Derived: 1}, 15},
		{"cashflow", layouts.Files{Exact: 32, Derived: 8}, 190},
	} {
		t.Run("T-27/"+c.name, func(t *testing.T) {
			dir := testkit.Data(t, "tally", c.name)
			st := openStore(t)
			r := mustBeClean(t, st, dir)
			if r.Files != c.want || r.Root != c.name {
				t.Errorf("the root is %q, the files are %+v, want %+v", r.Root, r.Files, c.want)
			}
			mustEqual(t, readTree(t, dir), exported(t, st))
			if again := mustBeClean(t, st, dir); again.Events != 0 || again.Unchanged != r.Sessions {
				t.Errorf("a second import added %d events; %d of %d sessions are unchanged", again.Events, again.Unchanged, r.Sessions)
			}
		})
	}
}

// Several roots are exported to a folder each, a selected one to the folder itself.
func TestRoots(t *testing.T) {
	st := openStore(t)
	a := writeTree(t, filepath.Join(t.TempDir(), "a"), smallTree())
	other := map[string]string{"conversations/c2/conversation.jsonl": step(0) + "\n", "readme": "x"}
	b := writeTree(t, filepath.Join(t.TempDir(), "b"), other)
	mustBeClean(t, st, a)
	mustBeClean(t, st, b)
	out := t.TempDir()
	if r := mustExport(t, st, out, layouts.ExportOptions{}); r.Files != (layouts.Files{Exact: 6, Derived: 1, Whole: 1}) || r.Written != 8 {
		t.Errorf("the report is %+v", r)
	}
	mustEqual(t, smallTree(), readTree(t, filepath.Join(out, "a")))
	mustEqual(t, other, readTree(t, filepath.Join(out, "b")))
	out = t.TempDir()
	mustExport(t, st, out, layouts.ExportOptions{Root: "b"})
	mustEqual(t, other, readTree(t, out))
}
