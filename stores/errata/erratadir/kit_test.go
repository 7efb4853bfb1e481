package erratadir_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/layouttest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/errata/erratadir"
)

func TestMain(m *testing.M) {
	testkit.CollectLess()
	goleak.VerifyTestMain(m)
}

type store = layouttest.Store

func openStore(t testing.TB) store { return layouttest.OpenStore(t) }

func mustImport(t testing.TB, st layouts.Target, dir string) layouts.Report {
	t.Helper()
	r, err := (erratadir.Layout{}).Import(t.Context(), st, dir, layouts.ImportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// mustBeClean imports a folder without problems.
func mustBeClean(t testing.TB, st layouts.Target, dir string) layouts.Report {
	t.Helper()
	r := mustImport(t, st, dir)
	layouttest.MustBeClean(t, r)
	return r
}

func mustExport(t testing.TB, st layouts.Source, layout erratadir.Layout, dir string, o layouts.ExportOptions) layouts.Report {
	t.Helper()
	return layouttest.MustExport(t, st, layout, dir, o)
}

// exported returns all files of an export.
func exported(t testing.TB, st layouts.Source) map[string]string {
	t.Helper()
	files, r := layouttest.Exported(t, st, erratadir.Layout{})
	layouttest.MustBeClean(t, r)
	return files
}

var (
	readTree  = layouttest.ReadTree
	mustEqual = layouttest.MustEqual
)

func writeTree(t testing.TB, dir string, files map[string]string) string {
	t.Helper()
	return layouttest.WriteTree(t, dir, 0o600, files)
}

// folder writes a tree to the folder data of a project proj.
func folder(t testing.TB, files map[string]string) string {
	t.Helper()
	return writeTree(t, filepath.Join(t.TempDir(), "proj", "data"), files)
}

// replaceTree replaces the content of a folder by another tree.
func replaceTree(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	writeTree(t, dir, files)
}

func load(t testing.TB, st store, id string) *projector.Session {
	t.Helper()
	s, err := st.Loader().Session(t.Context(), events.Session(st.Name, id), 0)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// live appends an event from a source other than an import.
func live(t testing.TB, st store, id string, expect log.Expect, p events.Payload) {
	t.Helper()
	e, err := events.New("urn:test:live", events.Session(st.Name, id), p)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.Append(t.Context(), e.Subject, expect, e); err != nil {
		t.Fatal(err)
	}
}

// marshal returns a value in the original's JSON.
func marshal(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(data)
}
