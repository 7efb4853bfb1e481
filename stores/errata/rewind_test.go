package errata_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/internal/testkit/layouttest"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/errata"
)

// playRun makes a program's calls for one run of a panel.
func playRun(t *testing.T, s *errata.Session, prompt string, feed int) (entry, run string) {
	t.Helper()
	responses := []errata.Response{answer("a", "A "+prompt), answer("b", "B "+prompt)}
	a := mustAppendHistories(t, s, []string{"a", "b"}, responses, prompt)
	ref, err := s.PersistRunState(t.Context(), errata.Run{Prompt: prompt, Responses: responses, Tools: []string{"bash"}})
	must(t, err)
	entry, err = s.PushRewindEntry(t.Context(), errata.RewindEntry{At: a.At, Run: ref.ID, Prompt: prompt, HistoryLengths: a.Lengths, FeedIndex: feed})
	must(t, err)
	return entry, ref.ID
}

func stackLen(t *testing.T, s *errata.Session) int {
	t.Helper()
	n, err := s.RewindStackLen(t.Context())
	must(t, err)
	can, err := s.CanRewind(t.Context())
	if err != nil || can != (n > 0) {
		t.Errorf("CanRewind is %v with %d entries, error %v", can, n, err)
	}
	return n
}

func mustRewind(t *testing.T, s *errata.Session, w errata.WorkTree) errata.RewindResult {
	t.Helper()
	r, err := s.Rewind(t.Context(), w)
	must(t, err)
	return r
}

func TestPanelRewind(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *tally.Store) {
		t.Run("E-15 nothing to rewind", func(t *testing.T) {
			_, err := errata.Of(st, "e15").Rewind(t.Context(), errata.WorkTree{})
			if !errors.Is(err, errata.ErrNothingToRewind) || err.Error() != "nothing to rewind" {
				t.Errorf("got the error %v", err)
			}
		})
		t.Run("E-16 E-18 N pushes allow N rewinds in reverse order", func(t *testing.T) {
			s := errata.Of(st, "e16")
			var states []map[string][]errata.Turn
			for i := range 4 {
				states = append(states, mustHistories(t, s))
				playRun(t, s, fmt.Sprint("q", i), i)
			}
			for i := 3; i >= 0; i-- {
				if n := stackLen(t, s); n != i+1 {
					t.Fatalf("got %d entries, want %d", n, i+1)
				}
				mustRewind(t, errata.Of(st, "e16"), errata.WorkTree{}) // any handle will do
				wantEqual(t, fmt.Sprint("histories before run ", i), mustHistories(t, s), states[i])
			}
			if _, err := s.Rewind(t.Context(), errata.WorkTree{}); !errors.Is(err, errata.ErrNothingToRewind) {
				t.Error(err)
			}
		})
		t.Run("E-19 E-40 marker, note and result", func(t *testing.T) {
			s := errata.Of(st, "e19")
			_, first := playRun(t, s, "q1", -1)
			_, second := playRun(t, s, "q2", 7)
			must(t, s.UpdateLastRunNote(t.Context(), "Applied: x"))
			r := mustRewind(t, s, errata.WorkTree{})
			if r.FeedIndex != 7 || r.Note != "[rewound] Applied: x" || r.FileMsg != "" || r.Run != second {
				t.Errorf("got %+v", r)
			}
			if r = mustRewind(t, s, errata.WorkTree{}); r.FeedIndex != -1 || r.Note != "[rewound]" || r.Run != first {
				t.Errorf("got %+v", r)
			}
			m, err := s.Metadata(t.Context())
			must(t, err)
			var marked []string
			for _, sum := range m.Runs[2:] {
				marked = append(marked, sum.Type+" "+sum.Run)
			}
			wantEqual(t, "markers", marked, []string{"rewind " + second, "rewind " + first})
			if m.Runs[1].Note != "[rewound] Applied: x" || m.Runs[2].PromptHash != m.Runs[1].PromptHash {
				t.Errorf("got %+v", m.Runs)
			}
		})
		t.Run("E-19 one marker for an entry, and one for a run without", func(t *testing.T) {
			s := errata.Of(st, "e19-without")
			_, first := playRun(t, s, "one", -1)
			responses := []errata.Response{answer("a", "A"), answer("b", "B")}
			mustAppendHistories(t, s, []string{"a", "b"}, responses, "two") // no entry is pushed
			second := mustPersist(t, s, errata.Run{Prompt: "two", Responses: responses})
			if r := mustRewind(t, s, errata.WorkTree{}); r.Run != first || r.Note != "[rewound]" {
				t.Errorf("got %+v", r)
			}
			// The first run's entry goes back to before both. Each withdrawn run has one marker, the newest first, as
			// after two rewinds of the original.
			const one = "ph_7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed" // printf one | sha256sum
			const two = "ph_3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3"
			want := []string{" " + first + " " + one, " " + second + " " + two, "rewind " + second + " " + two, "rewind " + first + " " + one}
			var runs, contents []string
			for _, sum := range mustMetadata(t, s).Runs {
				runs = append(runs, sum.Type+" "+sum.Run+" "+sum.PromptHash)
			}
			wantEqual(t, "runs", runs, want)
			c, err := s.Content(t.Context())
			must(t, err)
			for _, run := range c.Runs {
				contents = append(contents, run.Run+" "+run.Prompt)
			}
			wantEqual(t, "contents", contents, []string{first + " one", second + " two", second + " ", first + " "})
			stats, err := errata.StatsOf(t.Context(), st, errata.Filter{Session: s.ID()})
			if err != nil || len(stats) != 0 {
				t.Errorf("withdrawn runs count: %+v, %v", stats, err)
			}
		})
		t.Run("E-20 E-45 what a rewind leaves alone", func(t *testing.T) {
			s := errata.Of(st, "e20")
			_, err := errata.PromptsOf(st).Record(t.Context(), "q2")
			must(t, err)
			playRun(t, s, "q1", 0)
			before := mustHistories(t, s)
			playRun(t, s, "q2", 1)
			must(t, s.AccumulateCost(t.Context(), tally.Cost{Model: "a", USD: "0.1"}))
			must(t, s.RecordSelection(t.Context(), errata.SelectionParams{SelectedModelID: "a", Rating: "good"}))
			must(t, s.UpdateLastRunNote(t.Context(), "note"))
			must(t, s.SetSessionRecipe(t.Context(), &errata.Recipe{Version: 1, Name: "r"}))
			mustRewind(t, s, errata.WorkTree{})
			wantEqual(t, "histories", mustHistories(t, s), before)
			if total, err := s.TotalCost(t.Context()); err != nil || total != "0.1" {
				t.Errorf("the cost is %v, error %v", total, err)
			}
			m, err := s.Metadata(t.Context())
			must(t, err)
			if m.PromptCount != 2 || m.FirstPrompt != "q1" || m.LastPrompt != "q2" {
				t.Errorf("got %+v", m)
			}
			if run := m.Runs[1]; run.Selected != "a" || run.Rating != "good" || run.Note != "[rewound] note" {
				t.Errorf("got %+v", run)
			}
			prompts, err := errata.PromptsOf(st).List(t.Context())
			if err != nil || prompts[0] != "q2" {
				t.Errorf("got %v, error %v", prompts, err)
			}
			recipe, err := s.SessionRecipe(t.Context())
			if err != nil || recipe == nil || recipe.Name != "r" {
				t.Errorf("got %v, error %v", recipe, err)
			}
			tools, err := s.LastActiveTools(t.Context())
			must(t, err)
			wantEqual(t, "tools", tools, []string{"bash"})
			if n := stackLen(t, s); n != 1 {
				t.Errorf("got %d entries", n)
			}
		})
		t.Run("E-21 E-46 the stack is the log's", func(t *testing.T) {
			s := errata.Of(st, "e21")
			playRun(t, s, "q1", 0)
			playRun(t, s, "q2", 0)
			other := errata.Of(st, "e21")
			if n := stackLen(t, other); n != 2 {
				t.Fatalf("got %d entries", n)
			}
			full := mustHistories(t, s)
			mustRewind(t, other, errata.WorkTree{})
			if n := stackLen(t, s); n != 1 {
				t.Errorf("got %d entries after a rewind", n)
			}
			_, err := s.UndoRewind(t.Context(), errata.WorkTree{})
			must(t, err)
			if n := stackLen(t, s); n != 2 {
				t.Errorf("got %d entries after an undo", n)
			}
			wantEqual(t, "histories after an undo", mustHistories(t, s), full)
			m, err := s.Metadata(t.Context())
			if err != nil || len(m.Runs) != 2 || m.Runs[1].Note != "" {
				t.Errorf("an undo left a marker: %+v, error %v", m.Runs, err)
			}
			_, err = s.RedoRewind(t.Context(), errata.WorkTree{})
			must(t, err)
			if n := stackLen(t, s); n != 1 {
				t.Errorf("got %d entries after a redo", n)
			}
			must(t, s.ClearRewindStack(t.Context(), "clear"))
			if n := stackLen(t, s); n != 0 {
				t.Errorf("got %d entries after clearing", n)
			}
			if _, err := errata.Of(st, "none").RedoRewind(t.Context(), errata.WorkTree{}); !errors.Is(err, projector.ErrNothingToRedo) {
				t.Error(err)
			}
		})
		t.Run("E-23 clear and compact empty the stack, unless it is kept", func(t *testing.T) {
			s := errata.Of(st, "e23")
			playRun(t, s, "q1", 0)
			before := mustHistories(t, s)
			must(t, s.Clear(t.Context(), errata.KeepStack))
			if n := stackLen(t, s); n != 1 {
				t.Errorf("got %d entries", n)
			}
			mustRewind(t, s, errata.WorkTree{})
			_, err := s.UndoRewind(t.Context(), errata.WorkTree{})
			must(t, err)
			must(t, s.Compact(t.Context(), before))
			if n := stackLen(t, s); n != 0 {
				t.Errorf("got %d entries after compacting", n)
			}
			playRun(t, s, "q2", 0)
			must(t, s.Clear(t.Context(), errata.DropStack))
			if n, h := stackLen(t, s), mustHistories(t, s); n != 0 || len(h) != 0 {
				t.Errorf("got %d entries, histories %v", n, h)
			}
		})
		t.Run("several steps and a dry run", func(t *testing.T) {
			s := errata.Of(st, "steps")
			first := mustHistories(t, s)
			for i := range 3 {
				playRun(t, s, fmt.Sprint("q", i), i)
			}
			plan, err := s.PlanRewindSteps(t.Context(), errata.WorkTree{}, 3)
			must(t, err)
			if plan.Leaves.Count != 12 || plan.Returns.Count != 0 || len(plan.Entries) != 3 || stackLen(t, s) != 3 {
				t.Errorf("got %+v", plan)
			}
			if _, err := s.RewindSteps(t.Context(), errata.WorkTree{}, 4); !errors.Is(err, errata.ErrNothingToRewind) {
				t.Error(err)
			}
			r, err := s.RewindSteps(t.Context(), errata.WorkTree{}, 3)
			if err != nil || r.FeedIndex != 0 {
				t.Errorf("got %+v, error %v", r, err)
			}
			wantEqual(t, "histories", mustHistories(t, s), first)
			m, err := s.Metadata(t.Context())
			if err != nil || len(m.Runs) != 6 || m.Runs[3].PromptHash != m.Runs[2].PromptHash || m.Runs[5].PromptHash != m.Runs[0].PromptHash {
				t.Errorf("got %+v, error %v", m.Runs, err)
			}
		})
	})
}

// writeTree writes files, by path; "" removes one.
func writeTree(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if text == "" {
			must(t, os.Remove(path))
			continue
		}
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte(text), 0o644))
	}
}

// readTree reads the files below a folder, each with its permissions.
func readTree(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := layouttest.ReadTree(t, dir)
	for name, content := range files {
		info, err := os.Lstat(filepath.Join(dir, name))
		must(t, err)
		files[name] = info.Mode().Perm().String() + " " + content
	}
	return files
}

// applyRun plays a run whose writes are applied.
func applyRun(t *testing.T, s *errata.Session, dir, prompt string, writes map[string]string) {
	t.Helper()
	playRun(t, s, prompt, 0)
	var list []errata.FileWrite
	for name, text := range writes {
		list = append(list, errata.FileWrite{Path: name, Content: text, Delete: text == ""})
	}
	snaps, err := errata.SnapshotFiles(dir, list)
	must(t, err)
	writeTree(t, dir, writes)
	must(t, s.PushFileSnapshots(t.Context(), errata.WorkTree{Dir: dir}, snaps))
}

func TestPanelRewindFiles(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *tally.Store) {
		t.Run("E-17 E-22 changed, created and deleted files", func(t *testing.T) {
			s, dir := errata.Of(st, "e17"), t.TempDir()
			w := errata.WorkTree{Dir: dir}
			must(t, s.PushFileSnapshots(t.Context(), w, []errata.FileSnapshot{{Path: "x", DidNotExist: true}})) // no entry: nothing happens
			writeTree(t, dir, map[string]string{"changed": "old", "deleted/deep": "gone soon", "tool.sh": "#!"})
			must(t, os.Chmod(filepath.Join(dir, "tool.sh"), 0o755))
			before := readTree(t, dir)
			applyRun(t, s, dir, "q", map[string]string{"changed": "new", "created/x": "c", "deleted/deep": "", "tool.sh": "changed"})
			must(t, os.Remove(filepath.Join(dir, "deleted"))) // the folder has to be restored, too
			after := readTree(t, dir)
			must(t, s.PushFileSnapshots(t.Context(), w, nil)) // changes nothing
			plan, err := s.PlanRewindSteps(t.Context(), w, 1)
			if err != nil || len(plan.Files) != 4 {
				t.Fatalf("got %+v, error %v", plan, err)
			}
			wantEqual(t, "tree after a dry run", readTree(t, dir), after)
			r := mustRewind(t, s, w)
			if r.FileMsg != "" || len(r.Files) != 4 {
				t.Errorf("got %+v", r)
			}
			wantEqual(t, "tree", readTree(t, dir), before)
			_, err = s.UndoRewind(t.Context(), w)
			must(t, err)
			wantEqual(t, "tree after an undo", readTree(t, dir), after)
			_, err = s.RedoRewind(t.Context(), w)
			must(t, err)
			wantEqual(t, "tree after a redo", readTree(t, dir), before)
		})
		t.Run("E-17 it goes on past errors, and says so", func(t *testing.T) {
			s, dir := errata.Of(st, "e17b"), t.TempDir()
			writeTree(t, dir, map[string]string{"a": "old a", "b": "old b"})
			applyRun(t, s, dir, "q", map[string]string{"a": "new a", "b": "new b"})
			must(t, os.Remove(filepath.Join(dir, "a")))
			must(t, os.Mkdir(filepath.Join(dir, "a"), 0o755))
			r := mustRewind(t, s, errata.WorkTree{Dir: dir})
			if !strings.HasPrefix(r.FileMsg, " (file restore warning: a: ") {
				t.Errorf("got %q", r.FileMsg)
			}
			wantEqual(t, "tree", readTree(t, dir), map[string]string{"b": "-rw-r--r-- old b"})
			if n := stackLen(t, s); n != 0 {
				t.Errorf("got %d entries", n)
			}
		})
		t.Run("several steps restore what the oldest saw", func(t *testing.T) {
			s, dir := errata.Of(st, "deep"), t.TempDir()
			writeTree(t, dir, map[string]string{"a": "0"})
			before := readTree(t, dir)
			applyRun(t, s, dir, "q1", map[string]string{"a": "1", "b": "1"})
			applyRun(t, s, dir, "q2", map[string]string{"a": "2", "b": "2", "c": "2"})
			after := readTree(t, dir)
			r, err := s.RewindSteps(t.Context(), errata.WorkTree{Dir: dir}, 2)
			if err != nil || r.FileMsg != "" {
				t.Errorf("got %+v, error %v", r, err)
			}
			wantEqual(t, "tree", readTree(t, dir), before)
			_, err = s.UndoRewind(t.Context(), errata.WorkTree{Dir: dir})
			must(t, err)
			wantEqual(t, "tree after an undo", readTree(t, dir), after)
		})
	})
}

// A file that was changed since the snapshot is reported first, and a copy is kept.
func TestPanelRewindKeepsChanges(t *testing.T) {
	st := storetest.Open(t, "memory")
	s, dir := errata.Of(st, "s"), t.TempDir()
	writeTree(t, dir, map[string]string{"a": "old", "a.orig": "somebody's"})
	applyRun(t, s, dir, "q", map[string]string{"a": "new"})
	writeTree(t, dir, map[string]string{"a": "edited by hand"})
	plan, err := s.PlanRewindSteps(t.Context(), errata.WorkTree{Dir: dir}, 1)
	if err != nil || !plan.Files[0].Changed {
		t.Errorf("got %+v, error %v", plan, err)
	}
	var told string
	r := mustRewind(t, s, errata.WorkTree{Dir: dir, Report: func(path, kept string) {
		data, err := os.ReadFile(filepath.Join(dir, path))
		told = fmt.Sprint(path, " ", kept, " ", string(data), err)
	}})
	if told != "a a.orig.1 edited by hand<nil>" || r.Files[0].Kept != "a.orig.1" || r.FileMsg == "" {
		t.Errorf("reported %q, result %+v", told, r)
	}
	wantEqual(t, "tree", readTree(t, dir), map[string]string{"a": "-rw-r--r-- old", "a.orig": "-rw-r--r-- somebody's", "a.orig.1": "-rw-r--r-- edited by hand"})
}

// A rewind that was interrupted before its event is repeated. An undo still restores the files before the first
// attempt.
func TestPanelRewindRepeated(t *testing.T) {
	st := storetest.Open(t, "memory")
	s, dir := errata.Of(st, "s"), t.TempDir()
	writeTree(t, dir, map[string]string{"a": "old"})
	applyRun(t, s, dir, "q", map[string]string{"a": "new"})
	if _, err := st.PutBlob(t.Context(), []byte("new")); err != nil { // the first attempt stored the content,
		t.Fatal(err)
	}
	writeTree(t, dir, map[string]string{"a": "old"}) // restored the file, and died
	r := mustRewind(t, s, errata.WorkTree{Dir: dir})
	if r.FileMsg != "" {
		t.Errorf("got %+v", r)
	}
	wantEqual(t, "tree", readTree(t, dir), map[string]string{"a": "-rw-r--r-- old"})
	_, err := s.UndoRewind(t.Context(), errata.WorkTree{Dir: dir})
	must(t, err)
	wantEqual(t, "tree after an undo", readTree(t, dir), map[string]string{"a": "-rw-r--r-- new"})
}

// No file outside of the working tree is read or written, not even through symlinks.
func TestPanelRewindStaysInside(t *testing.T) {
	st := storetest.Open(t, "memory")
	outside, dir := t.TempDir(), t.TempDir()
	writeTree(t, outside, map[string]string{"secret": "untouched"})
	must(t, os.Symlink(outside, filepath.Join(dir, "link")))
	must(t, os.Symlink(filepath.Join(outside, "secret"), filepath.Join(dir, "file")))
	must(t, os.Symlink("target", filepath.Join(dir, "inside")))
	writeTree(t, dir, map[string]string{"target": "new"})
	s := errata.Of(st, "s")
	playRun(t, s, "q", 0)
	var snaps []errata.FileSnapshot
	for _, name := range []string{"../x", "link/secret", "file", filepath.Join(outside, "secret"), "inside"} {
		snaps = append(snaps, errata.FileSnapshot{Path: name, Content: []byte("old"), Mode: 0o644})
	}
	_, err := s.PushRewindEntry(t.Context(), errata.RewindEntry{Prompt: "q", FileSnapshots: snaps})
	must(t, err)
	r := mustRewind(t, s, errata.WorkTree{Dir: dir})
	for _, f := range r.Files[:4] {
		if f.Action != "failed" {
			t.Errorf("got %+v", f)
		}
	}
	wantEqual(t, "outside", readTree(t, outside), map[string]string{"secret": "-rw-r--r-- untouched"})
	wantEqual(t, "inside", readTree(t, dir), map[string]string{"target": "-rw-r--r-- old"})
	if _, err := errata.SnapshotFiles(dir, []errata.FileWrite{{Path: "link/secret"}}); err == nil {
		t.Error("a snapshot of a file outside the working tree was accepted")
	}
	if snaps, err := errata.SnapshotFiles(dir, []errata.FileWrite{{Path: "none", Delete: true}, {Path: "new"}}); err != nil || len(snaps) != 1 || !snaps[0].DidNotExist {
		t.Errorf("got %+v, error %v", snaps, err)
	}
	r = mustRewind(t, s, errata.WorkTree{}) // the first entry: without files, no tree is needed
	if r.FileMsg != "" {
		t.Errorf("got %+v", r)
	}
}

// A planned move is made exactly as planned, or not at all.
func TestPanelMoveStack(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *tally.Store) {
		dir, s := t.TempDir(), errata.Of(st, "moved")
		writeTree(t, dir, map[string]string{"a.txt": "before"})
		applyRun(t, s, dir, "q1", map[string]string{"a.txt": "after"})
		w := errata.WorkTree{Dir: dir}
		plan, err := s.PlanRewindSteps(t.Context(), w, 1)
		must(t, err)
		applyRun(t, errata.Of(st, "moved"), dir, "q2", nil)
		if _, err := s.MoveStack(t.Context(), w, plan); !errors.Is(err, log.ErrConflict) {
			t.Errorf("move after a run since the plan: %v", err)
		}
		wantEqual(t, "tree", readTree(t, dir), map[string]string{"a.txt": "-rw-r--r-- after"})
		if n := stackLen(t, s); n != 2 {
			t.Errorf("got %d entries", n)
		}
		before, err := s.Load(t.Context(), "")
		must(t, err)

		plan, err = s.PlanRewindSteps(t.Context(), w, 2)
		must(t, err)
		must(t, s.AccumulateCost(t.Context(), tally.Cost{Model: "a", USD: "0.5"})) // does not conflict
		result, err := s.MoveStack(t.Context(), w, plan)
		if err != nil || result.Ack.Last == 0 || len(mustHistories(t, s)) != 0 {
			t.Errorf("got %+v, error %v", result, err)
		}
		wantEqual(t, "tree", readTree(t, dir), map[string]string{"a.txt": "-rw-r--r-- before"})

		rows, err := s.RunsAt(t.Context(), before)
		must(t, err)
		if len(rows) != 2 || rows[0].Rewound || rows[1].Rewound {
			t.Errorf("the runs before the rewind are %+v", rows)
		}
		rows, err = s.Runs(t.Context())
		must(t, err)
		if len(rows) != 4 || !rows[0].Rewound || !rows[1].Rewound {
			t.Errorf("the runs after the rewind are %+v", rows)
		}
	})
}
