package erratadir_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/formats"
	"github.com/tallylog/tally/internal/testkit/formattest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/errata/erratadir"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type store = formattest.Store

func openStore(t testing.TB) store { return formattest.OpenStore(t) }

func mustImport(t testing.TB, st formats.Target, dir string) formats.Report {
	t.Helper()
	r, err := (erratadir.Layout{}).Import(t.Context(), st, dir, formats.ImportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// mustBeClean imports a folder in which nothing is wrong.
func mustBeClean(t testing.TB, st formats.Target, dir string) formats.Report {
	t.Helper()
	r := mustImport(t, st, dir)
	formattest.MustBeClean(t, r)
	return r
}

func mustExport(t testing.TB, st formats.Source, layout erratadir.Layout, dir string, o formats.ExportOptions) formats.Report {
	t.Helper()
	return formattest.MustExport(t, st, layout, dir, o)
}

// exported gives all files of an export.
func exported(t testing.TB, st formats.Source) map[string]string {
	t.Helper()
	files, r := formattest.Exported(t, st, erratadir.Layout{})
	formattest.MustBeClean(t, r)
	return files
}

var (
	readTree  = formattest.ReadTree
	mustEqual = formattest.MustEqual
)

func writeTree(t testing.TB, dir string, files map[string]string) string {
	t.Helper()
	return formattest.WriteTree(t, dir, 0o600, files)
}

// folder writes a tree to the folder data of a project proj.
func folder(t testing.TB, files map[string]string) string {
	t.Helper()
	return writeTree(t, filepath.Join(t.TempDir(), "proj", "data"), files)
}

// replaceTree puts another tree in the place of what is in a folder.
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

// live appends what no import made.
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

// marshal writes a value as the original does.
func marshal(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(data)
}
