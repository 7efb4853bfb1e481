package tallydir_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/projector"
)

// T-30: sessions and runs of any name stay inside the folder, and keep their names.
func TestHostileIDs(t *testing.T) { t.Run("T-30", testHostileIDs) }

func testHostileIDs(t *testing.T) {
	ids := []string{"../x", "a/b", "C:x", ".", "..", "CON", "a=2Fb", "\xff", "x\x00y", "conversations", strings.Repeat("long", 100), strings.Repeat("/", 512), " ", "*"}
	st := openStore(t)
	for _, id := range ids {
		live(t, st, id, anyOffset, appended(`{"a":"b"}`))
		live(t, st, id, anyOffset, &events.RunFinished{Run: events.RunRef{Kind: "tally", ID: strings.ToValidUTF8(id, "?")}, Outcome: "completed", Result: events.Raw(`{"runId":"x"}`)})
	}
	out := filepath.Join(t.TempDir(), "in", "side")
	r := mustExport(t, st, out, layouts.ExportOptions{})
	if r.Sessions != len(ids) || r.Written != 3*len(ids) {
		t.Errorf("the report is %+v", r)
	}
	for _, dir := range []string{filepath.Dir(out), filepath.Dir(filepath.Dir(out))} {
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
			t.Errorf("got %d entries in %s, error %v", len(entries), dir, err)
		}
	}
	files := readTree(t, out)
	if len(files) != r.Written {
		t.Errorf("got %d files, but the report has %d written", len(files), r.Written)
	}
	back := openStore(t)
	if r := mustImport(t, back, out); r.Added != len(ids) {
		t.Errorf("the report of the import is %+v", r)
	}
	for _, id := range ids {
		short := len(layouts.FileName(id)) > 200 || layouts.IsShortened(layouts.FileName(id))
		s, err := back.Loader().Session(t.Context(), events.Session(back.Name, id), 0)
		if err != nil {
			t.Errorf("load the session %q: %v", id, err)
			continue
		}
		if run := (events.RunRef{Kind: "tally", ID: strings.ToValidUTF8(id, "?")}); s.Ledger.Run(run) == nil && !short {
			t.Errorf("%q: run %v is missing", id, run)
		}
		if sub, ok := layout.Subject(t.Context(), back, "side", "conversations/"+layouts.FileName(id)+"/meta.json"); !ok || sub.ID != id {
			t.Errorf("%q: the subject of its path is %v, %v", id, sub, ok)
		}
	}
	mustEqual(t, files, exported(t, back))
}

func TestSubject(t *testing.T) {
	st := openStore(t)
	for path, want := range map[string]string{
		"conversations/c1/meta.json": "session/c1", "conversations/a=2Fb/runs/tally/x.json": "session/a=2Fb", "README.md": "document/file/r=2FREADME=2Emd",
		"conversations/x": "document/file/r=2Fconversations=2Fx", "": "", "src/x": "", "conversations/c1/": "", "conversations/../x": "",
	} {
		if sub, ok := layout.Subject(t.Context(), st, "r", path); sub.String() != want || ok != (want != "") {
			t.Errorf("%q: %v, %v, want %q", path, sub, ok, want)
		}
	}
}

func TestExportOfNothing(t *testing.T) {
	d, err := layouts.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	st := openStore(t)
	for _, o := range []layouts.ExportOptions{{Session: "none"}, {All: true, Root: "none"}} {
		if _, err := layouts.Export(t.Context(), st, layout, d, o); !errors.Is(err, projector.ErrNotFound) {
			t.Errorf("export with %+v: %v", o, err)
		}
	}
	if r, err := layouts.Export(t.Context(), st, layout, d, layouts.ExportOptions{All: true}); err != nil || r.Written != 0 {
		t.Errorf("export of an empty store: %+v, error %v", r, err)
	}
}

// Sessions that were never files are exported beside imported ones, with their own names. An export changes neither
// equal files nor files that it does not own.
func TestExportBeside(t *testing.T) {
	st := openStore(t)
	mustBeClean(t, st, writeTree(t, filepath.Join(t.TempDir(), "p"), smallTree()))
	live(t, st, "l1", anyOffset, appended(`{}`))
	live(t, st, "agent/1", anyOffset, &events.SessionCreated{Kind: events.KindAgent, CreatedAt: "2026-01-01T00:00:00Z"})
	out := writeTree(t, t.TempDir(), map[string]string{"mine": "x", "p/" + conv + "meta.json": "old"})
	r := mustExport(t, st, out, layouts.ExportOptions{})
	if r.Sessions != 2 {
		t.Errorf("the report is %+v", r)
	}
	files := readTree(t, out)
	for name, want := range map[string]string{"mine": "x", "p/" + conv + "meta.json": smallTree()[conv+"meta.json"], "live/conversations/l1/conversation.jsonl": "{}"} {
		if files[name] != want {
			t.Errorf("%s: got %q, want %q", name, files[name], want)
		}
	}
}
