package errata_test

import (
	"reflect"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/stores/errata"
)

// A call without a change writes nothing: the log's head stays, for a missing session and for an existing one.
func TestNothingToDoWritesNothing(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *tally.Store) {
		ctx := t.Context()
		still := func(t *testing.T, what string, call func() error) {
			t.Helper()
			before, err := st.Log.Head(ctx)
			must(t, err)
			if err := call(); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			if after, err := st.Log.Head(ctx); err != nil || after != before {
				t.Errorf("%s: the head moved from %v to %v, %v", what, before, after, err)
			}
		}
		t.Run("E-22 snapshots without an entry", func(t *testing.T) {
			s, w := errata.Of(st, "e22"), errata.WorkTree{Dir: t.TempDir()}
			writeTree(t, w.Dir, map[string]string{"x": "content that would be stored"})
			push := func() error {
				return s.PushFileSnapshots(ctx, w, []errata.FileSnapshot{{Path: "x", Content: []byte("content that would be stored"), Mode: 0o644}, {Path: "y", DidNotExist: true}})
			}
			still(t, "no session", push)
			mustPersist(t, s, errata.Run{Prompt: "1", Responses: []errata.Response{answer("a", "A")}})
			still(t, "no entry", push)
			playRun(t, s, "2", 0)
			mustRewind(t, s, errata.WorkTree{})
			still(t, "the entry is used up", push)
			playRun(t, s, "3", 0)
			playRun(t, s, "4", 0)
			must(t, push())
			stack, err := s.RewindStack(ctx)
			if err != nil || len(stack) != 2 || len(stack[0].FileSnapshots) != 0 || len(stack[1].FileSnapshots) != 2 {
				t.Errorf("the snapshots are not attached to the newest of two entries: %+v, error %v", stack, err)
			}
		})
		t.Run("E-25 no checkpoint to clear", func(t *testing.T) {
			s := errata.Of(st, "e25-still")
			clearResume := func() error { return s.ClearCheckpoint(ctx) }
			still(t, "no session", clearResume)
			mustPersist(t, s, errata.Run{Prompt: "1"})
			still(t, "no checkpoint", clearResume)
			saver := s.SaveCheckpoint("", "q", []string{"a"}, false)
			must(t, saver.Update(ctx, answer("a", "half")))
			must(t, clearResume())
			still(t, "cleared already", clearResume)
			still(t, "cleared already, by another handle", func() error { return errata.Of(st, "e25-still").ClearCheckpoint(ctx) })
			must(t, saver.Update(ctx, answer("a", "more")))
			must(t, clearResume())
			if c, err := s.LoadCheckpoint(ctx); c != nil || err != nil {
				t.Errorf("a checkpoint that was saved and cleared a second time: %+v, error %v", c, err)
			}
		})
	})
}

// A caller that modifies a returned value changes it for no other caller: contents, the rewind stack, checkpoints,
// rows, recipes.
func TestReturnedIsTheCallersOwn(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *tally.Store) {
		t.Run("E-42 contents, rewind entries, checkpoints", func(t *testing.T) {
			ctx := t.Context()
			s := errata.Of(st, "e42")
			run := sampleRun()
			mustPersist(t, s, run)
			_, err := s.PushRewindEntry(ctx, errata.RewindEntry{Prompt: "q", HistoryLengths: map[string]int{"a": 0}, FeedIndex: 2})
			must(t, err)
			must(t, s.PushFileSnapshots(ctx, errata.WorkTree{Dir: t.TempDir()}, []errata.FileSnapshot{{Path: "x", Content: []byte("old"), Mode: 0o644}}))
			must(t, s.SaveCheckpoint("", "q", []string{"a", "b"}, false).Update(ctx, run.Responses[0]))
			must(t, s.SetLastActiveTools(ctx, []string{"bash"}))
			must(t, s.SetSessionRecipe(ctx, mustParse(t, recipeText)))
			views := map[string]struct {
				look  func() (any, error)
				spoil func(any)
			}{
				"Content": {func() (any, error) { return s.Content(ctx) }, func(v any) {
					c := v.(errata.Content)
					m := &c.Runs[0].Models[0]
					m.Text, m.Events[0].Data, m.ProposedWrites[0].Path, c.Runs[0].Prompt = "spoilt", "spoilt", "spoilt", "spoilt"
				}},
				"RewindStack": {func() (any, error) { return s.RewindStack(ctx) }, func(v any) {
					stack := v.([]errata.RewindEntry)
					stack[0].HistoryLengths["a"], stack[0].Prompt = 1000, "spoilt"
					for i := range stack[0].FileSnapshots {
						f := &stack[0].FileSnapshots[i]
						f.Path = "spoilt"
						for j := range f.Content {
							f.Content[j] = 'X'
						}
					}
				}},
				"LoadCheckpoint": {func() (any, error) { return s.LoadCheckpoint(ctx) }, func(v any) {
					c := v.(*errata.Checkpoint)
					c.AdapterIDs[0], c.Responses[0].Text, c.Responses[0].ToolCalls["bash"] = "spoilt", "spoilt", 1000
				}},
				"Metadata": {func() (any, error) { return s.Metadata(ctx) }, func(v any) {
					r := &v.(errata.Metadata).Runs[0]
					r.LatenciesMS["a"], r.ToolCalls["a"]["bash"], r.Models[0] = 1000, 1000, "spoilt"
				}},
				"LastActiveTools": {func() (any, error) { return s.LastActiveTools(ctx) }, func(v any) { v.([]string)[0] = "spoilt" }},
				"SessionRecipe":   {func() (any, error) { return s.SessionRecipe(ctx) }, func(v any) { v.(*errata.Recipe).Models[0] = "spoilt" }},
			}
			for name, view := range views {
				before := toJSON(t, need(view.look()))
				spoilt := need(view.look())
				view.spoil(spoilt)
				if reflect.DeepEqual(toJSON(t, spoilt), before) {
					t.Errorf("%s: the test did not modify %s", name, before)
				}
				wantEqual(t, name, toJSON(t, need(view.look())), before)
			}
		})
	})
}
