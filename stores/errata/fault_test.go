package errata_test

import (
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit/logtest"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/stores/errata"
)

// A publication without an answer is repeated, and stored once.
func TestFaults(t *testing.T) {
	storetest.EachFault(t, func(t *testing.T, st *tally.Store, call storetest.Call) {
		ctx, s, panel, answers := t.Context(), errata.Of(st, "s"), []string{"a"}, []errata.Response{answer("a", "A")}
		var a errata.Appended
		call("SaveInitialMeta", 1, func() error { return s.SaveInitialMeta(ctx, errata.Metadata{}) })
		call("SaveCheckpoint", 1, func() error { return s.SaveCheckpoint("r", "q", panel, false).Finish(ctx, answers[0]) })
		call("AppendHistories", 1, func() (err error) { a, err = s.AppendHistories(ctx, panel, answers, "q"); return err })
		call("AccumulateCost", 1, func() error {
			return s.AccumulateCost(ctx, tally.Cost{Model: "a", USD: "1", Run: events.RunRef{ID: "r"}})
		})
		call("PersistRunState", 1, func() error {
			_, err := s.PersistRunState(ctx, errata.Run{ID: "r", Prompt: "q", Responses: answers})
			return err
		})
		call("PushRewindEntry", 1, func() error {
			_, err := s.PushRewindEntry(ctx, errata.RewindEntry{At: a.At, Run: "r", Prompt: "q", HistoryLengths: a.Lengths})
			return err
		})
		call("RecordSelection", 1, func() error { return s.RecordSelection(ctx, errata.SelectionParams{SelectedModelID: "a"}) })
		call("UpdateLastRunNote", 1, func() error { return s.UpdateLastRunNote(ctx, "note") })
		call("SetModels", 1, func() error { return s.SetModels(ctx, panel) })
		call("SetLastActiveTools", 1, func() error { return s.SetLastActiveTools(ctx, []string{"t"}) })
		call("SetSessionRecipe", 2, func() error { return s.SetSessionRecipe(ctx, &errata.Recipe{}) })
		call("ClearCheckpoint", 1, func() error { return s.ClearCheckpoint(ctx) })
		call("Rewind", 1, func() error { _, err := s.Rewind(ctx, errata.WorkTree{}); return err })
		call("UndoRewind", 1, func() error { _, err := s.UndoRewind(ctx, errata.WorkTree{}); return err })
		call("SetHistories", 1, func() error { return s.SetHistories(ctx, map[string][]errata.Turn{"a": turns("short", "s")}) })
		call("TruncateHistories", 1, func() error { return s.TruncateHistories(ctx, map[string]int{"a": 1}) })
		call("Clear", 2, func() error { return s.Clear(ctx, errata.DropStack) })
		call("Record", 2, func() error { _, err := errata.PromptsOf(st).Record(ctx, "p"); return err })
		call("Record, another", 1, func() error { _, err := errata.PromptsOf(st).Record(ctx, "p2"); return err })
		call("Record, known", 0, func() error { _, err := errata.PromptsOf(st).Record(ctx, "p2"); return err })
		call("Recipes.Put", 1, func() error { _, err := errata.RecipesOf(st).Put(ctx, []byte("# r")); return err })
	})
}

// A process that dies while it persists a run leaves no part of the run. The same call in the next process appends
// the missing events, once.
func TestPersistKilled(t *testing.T) {
	for n := 1; n < 6; n++ { // publications that reach the log before it dies
		left := n
		st := storetest.Faulty(t, func() logtest.Fault {
			if left--; left < 0 {
				return logtest.Dropped
			}
			return logtest.None
		})
		o := errata.Options{SessionID: "s", Meta: errata.Metadata{Models: []string{"a", "b"}}, RecipeStore: errata.RecipesOf(st), Recipe: &errata.Recipe{Name: "r"}}
		persist := func() error {
			e, err := errata.New(t.Context(), st, o)
			if err != nil {
				return err
			}
			return e.PersistRunState(t.Context(), "q", []errata.Response{answer("a", "A")}, nil, nil)
		}
		must(t, errata.Of(st, "s").SaveInitialMeta(t.Context(), errata.Metadata{})) // uses the first one
		err := persist()
		if (err == nil) != (n > 4) {
			t.Fatalf("after %d publications: %v", n, err)
		}
		if runs := mustMetadata(t, errata.Of(st, "s")).Runs; len(runs) != max(n-4, 0) {
			t.Errorf("after %d publications: got %d runs", n, len(runs))
		}
		if left = 100; err != nil {
			must(t, persist())
		}
		records := 0
		for _, err := range st.Log.Read(t.Context(), events.Range{}) {
			must(t, err)
			records++
		}
		if records != 5 || len(mustMetadata(t, errata.Of(st, "s")).Runs) != 1 {
			t.Errorf("after %d publications and a repetition: got %d records", n, records)
		}
	}
}
