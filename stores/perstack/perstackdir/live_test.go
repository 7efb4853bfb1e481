package perstackdir_test

import (
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/testkit/layouttest"
	"github.com/tallylog/tally/log"
)

func TestEntries(t *testing.T) {
	l := keyed(t)
	open := func() layouts.Target { return openStore(t) }
	none := func(events.Subject) bool { return false }
	t.Run("P-13 a folder from any storage, unit by unit", func(t *testing.T) {
		for seed := range layouttest.Seeds(2) {
			files := map[string]string{"notes.txt": "mine", "logs/a.bin": "\xff", "jobs/readme": "x", "jobs/b/extra/x": "kept", "jobs/b/runs/run-b/run-setting.json~": canary("left")}
			for _, job := range []string{"a", "b", "=41", "c d"} {
				maps.Copy(files, small(job).files)
			}
			delete(files, "jobs/a/job.json") // the runtime does not write it
			st := openStore(t)
			root := layouttest.CheckImportFrom(t, l, folder(t, files), st, openStore(t))
			layouttest.CheckEntries(t, st, l, root)
			layouttest.CheckAlone(t, l, root, st, open)
			layouttest.CheckEdits(t, l, root, st, rand.New(rand.NewPCG(seed, 1)), 10)
			layouttest.CheckEntries(t, st, l, root)
			layouttest.CheckRemovals(t, l, root, st, none)
		}
	})
	t.Run("B-49 imported jobs are in a tree like others", func(t *testing.T) {
		files := map[string]string{"jobs/b/extra/x": "kept"}
		for _, job := range []string{"a", "b", "=41"} {
			maps.Copy(files, small(job).files)
		}
		layouttest.CheckImported(t, l, folder(t, files), openStore(t), open, rand.New(rand.NewPCG(3, 1)))
	})
	t.Run("P-13 live jobs", func(t *testing.T) {
		st, root := openStore(t), layouts.Root{Name: layouts.LiveRoot, Marker: "m"}
		for _, id := range []string{"a", "../x"} {
			e, err := events.New("urn:test:live", events.Session(st.Name, "job/"+id), &events.SessionCreated{Kind: events.KindJob, CreatedAt: "2026-08-22T10:00:00Z",
				Raw: events.Raw(`{"id":"` + id + `","status":"running","coordinatorExpertKey":"e","totalSteps":0,"usage":{},"startedAt":1754000000000}`)})
			if err == nil {
				_, err = st.Append(t.Context(), e.Subject, log.At(0), e)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if shown := layouttest.CheckEntries(t, st, l, root); len(shown) != 2 {
			t.Errorf("got %d entries", len(shown))
		}
		layouttest.CheckEdits(t, l, root, st, rand.New(rand.NewPCG(7, 1)), 12)
		layouttest.CheckEntries(t, st, l, root)
		layouttest.CheckRemovals(t, l, root, st, none)
	})
}
