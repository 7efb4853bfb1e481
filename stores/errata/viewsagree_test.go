package errata_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/testkit/layouttest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/errata"
	"github.com/tallylog/tally/stores/errata/erratadir"
)

// mustAgree checks that a session's views equal its export byte for byte, and returns the export.
func mustAgree(t fataler, test *testing.T, st *tally.Store, id string) map[string]string {
	t.Helper()
	files, report := layouttest.Exported(test, st, erratadir.Layout{})
	if len(report.Problems) > 0 {
		t.Fatalf("export: %v", report.Problems)
	}
	s := errata.Of(st, id)
	meta, err := s.Metadata(test.Context())
	if err != nil {
		t.Fatalf("%v", err)
	}
	content, err := s.Content(test.Context())
	if err != nil {
		t.Fatalf("%v", err)
	}
	for name, v := range map[string]any{"session_metadata.json": meta, "session_content.json": content} {
		file, there := files["sessions/"+id+"/"+name]
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatalf("%v", err)
		}
		if there && file != string(data) {
			t.Fatalf("%s\nin the API    %s\nin the export %s", name, data, file)
		}
		if !there && name == "session_metadata.json" && len(meta.Runs) > 0 {
			t.Fatalf("the export lacks %s", name)
		}
	}
	return files
}

// agreement is a random program of a panel with rare steps: entries that are pushed without a run, runs that are
// persisted without an entry, repeated runs, stale answers, rewinds to positions, undo and redo, empty prompts and
// notes, and folders that were edited and imported.
type agreement struct {
	t       *rapid.T
	test    *testing.T
	st      *tally.Store
	handles [2]*errata.Session
	last    string // id of a run
	n       int
}

func (a *agreement) must(err error) {
	a.t.Helper()
	if err != nil && !errors.Is(err, errata.ErrNothingToRewind) && !errors.Is(err, projector.ErrNothingToUndo) && !errors.Is(err, projector.ErrNotFound) {
		a.t.Fatalf("%v", err)
	}
}

func (a *agreement) step() {
	t, ctx := a.t, a.test.Context()
	s := a.handles[rapid.IntRange(0, 1).Draw(t, "handle")]
	prompt := rapid.SampledFrom([]string{"p", "q <&>", "", strings.Repeat("long é", 40)}).Draw(t, "prompt")
	responses := []errata.Response{{ModelID: "a", Text: "A", CostUSD: 0.25}, {ModelID: "b", Error: "x"}}
	a.n++
	switch op := rapid.SampledFrom([]string{"run", "run", "look", "persist", "push", "append", "again", "rewind", "to", "undo", "redo", "note", "select", "models", "clear", "edit"}).Draw(t, "op"); op {
	case "look":
		_, err := s.Histories(ctx)
		a.must(err)
	case "run", "persist", "push", "append":
		entry := errata.RewindEntry{Prompt: prompt, FeedIndex: -1, Run: errata.NewID(errata.RunIDPrefix)}
		if op == "run" || op == "append" {
			before, err := s.AppendHistories(ctx, []string{"a", "b"}, responses, prompt)
			a.must(err)
			entry.At, entry.HistoryLengths = before.At, before.Lengths
		}
		if rapid.Bool().Draw(t, "named") {
			a.last = entry.Run
		} else {
			entry.Run = ""
		}
		if op == "run" || op == "push" {
			_, err := s.PushRewindEntry(ctx, entry)
			a.must(err)
		}
		if op == "run" || op == "persist" {
			_, err := s.PersistRunState(ctx, errata.Run{ID: entry.Run, Prompt: prompt, Responses: responses})
			a.must(err)
		}
	case "again":
		if a.last != "" {
			_, err := s.PersistRunState(ctx, errata.Run{ID: a.last, Prompt: prompt, Responses: responses[:1]})
			a.must(err)
		}
	case "rewind":
		_, err := s.Rewind(ctx, errata.WorkTree{})
		a.must(err)
	case "to", "undo", "redo":
		var m *tally.Move
		var err error
		switch op {
		case "to":
			m, err = s.Session.PlanRewind(ctx, fmt.Sprintf("@%d", rapid.IntRange(1, a.n*2).Draw(t, "to")), "")
		case "undo":
			m, err = s.Session.PlanUndo(ctx)
		case "redo":
			m, err = s.Session.PlanRedo(ctx)
		}
		if err == nil {
			_, err = s.Session.Move(ctx, m)
			a.must(err)
		}
	case "note":
		a.must(s.UpdateLastRunNote(ctx, prompt))
	case "select":
		a.must(s.RecordSelection(ctx, errata.SelectionParams{SelectedModelID: "a", Rating: rapid.SampledFrom([]string{"", "good", "bad"}).Draw(t, "rating"), AppliedFiles: []string{"f"}}))
	case "models":
		a.must(s.SetModels(ctx, rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b"}), 0, 2).Draw(t, "models")))
	case "clear":
		a.must(s.ClearHistories(ctx))
	case "edit":
		a.edit(prompt)
	}
}

// edit exports the folder, edits it as a person would, and imports it again.
func (a *agreement) edit(note string) {
	files := mustAgree(a.t, a.test, a.st, "ses_1")
	const name = "sessions/ses_1/session_metadata.json"
	var m errata.Metadata
	if json.Unmarshal([]byte(files[name]), &m) != nil || len(m.Runs) == 0 {
		return
	}
	for _, run := range m.Runs {
		// A marker in a file names no run, and its empty content equals that of any empty prompt. So the meaning of a
		// file with markers is a guess, as it was for the original.
		if run.Type != "" || strings.HasPrefix(run.Note, "[rewound]") {
			return
		}
	}
	m.Runs[0].Note = note
	data, err := json.Marshal(m)
	a.must(err)
	files[name] = string(data)
	dir := layouttest.WriteTree(a.test, filepath.Join(a.test.TempDir(), "p"), 0o600, files)
	defer os.RemoveAll(dir)
	r, err := (erratadir.Layout{}).Import(a.test.Context(), a.st, dir, layouts.ImportOptions{Merge: true})
	a.must(err)
	if len(r.Refused) > 0 {
		a.t.Fatalf("the import was refused: %+v", r)
	}
	again := mustAgree(a.t, a.test, a.st, "ses_1")
	for _, name := range []string{name, "sessions/ses_1/session_content.json"} {
		if again[name] != files[name] {
			a.t.Fatalf("%s was imported as\n%s\nbut exported as\n%s", name, files[name], again[name])
		}
	}
}

// The views of a program and the folder of a panel agree: after any program of calls, Metadata and Content equal the
// export byte for byte.
func TestViewsAgree(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		l, err := log.OpenOn(t.Context(), memlog.New(memlog.Config{}), log.Config{})
		if err != nil {
			rt.Fatal(err)
		}
		st, err := tally.Open(t.Context(), l, tally.Config{Source: "urn:test"})
		if err != nil {
			rt.Fatal(err)
		}
		defer st.Close()
		a := &agreement{t: rt, test: t, st: st, handles: [2]*errata.Session{errata.Of(st, "ses_1"), errata.Of(st, "ses_1")}}
		if rapid.Bool().Draw(rt, "visible first") {
			a.must(a.handles[0].SaveInitialMeta(t.Context(), errata.Metadata{ID: "ses_1", CreatedAt: time.Date(2026, 3, 1, 2, 3, 4, 5, time.UTC), Models: []string{"a"}}))
		}
		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			a.step()
			mustAgree(rt, t, st, "ses_1")
		}
	})
}
