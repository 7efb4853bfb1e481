package tallydir_test

import (
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/testkit/gentree"
	"github.com/tallylog/tally/internal/testkit/layouttest"
)

func nobody(events.Subject) bool { return false }

func TestEntries(t *testing.T) {
	open := func() layouts.Target { return openStore(t) }
	t.Run("T-38 a folder from any storage, unit by unit", func(t *testing.T) {
		for seed := range layouttest.Seeds(3) {
			dir := filepath.Join(t.TempDir(), "p")
			if _, err := gentree.Write(dir, gentree.Options{Seed: seed, Sessions: 8, Turns: 4, TurnBytes: 200, Odd: true}); err != nil {
				t.Fatal(err)
			}
			a := openStore(t)
			root := layouttest.CheckImportFrom(t, layout, dir, a, openStore(t))
			layouttest.CheckEntries(t, a, layout, root)
			layouttest.CheckAlone(t, layout, root, a, open)
			layouttest.CheckEdits(t, layout, root, a, rand.New(rand.NewPCG(seed, 1)), 15)
			layouttest.CheckEntries(t, a, layout, root)
			layouttest.CheckRemovals(t, layout, root, a, nobody)
		}
	})
	t.Run("B-49 imported conversations are in a tree like others", func(t *testing.T) {
		for seed := range layouttest.Seeds(2) {
			dir := filepath.Join(t.TempDir(), "p")
			if _, err := gentree.Write(dir, gentree.Options{Seed: seed, Sessions: 8, Turns: 4, TurnBytes: 200, Odd: true}); err != nil {
				t.Fatal(err)
			}
			layouttest.CheckImported(t, layout, dir, openStore(t), open, rand.New(rand.NewPCG(seed, 1)))
		}
	})
	t.Run("T-38 live conversations", func(t *testing.T) {
		st, root := openStore(t), layouts.Root{Name: layouts.LiveRoot, Marker: "m"}
		for _, id := range []string{"c1", "../x", "A"} {
			live(t, st, id, anyOffset, appended(step(0)))
			live(t, st, id, anyOffset, appended(step(1)))
			live(t, st, id, anyOffset, &events.RunFinished{Run: events.RunRef{Kind: "tally", ID: "r/1"}, Outcome: "completed", Result: events.Raw(`{"runId":"x"}`)})
		}
		layouttest.CheckEntries(t, st, layout, root)
		layouttest.CheckEdits(t, layout, root, st, rand.New(rand.NewPCG(7, 1)), 15)
		layouttest.CheckEntries(t, st, layout, root)
		layouttest.CheckRemovals(t, layout, root, st, nobody)
	})
	t.Run("a conversation from elsewhere is not taken over", func(t *testing.T) {
		st := openStore(t)
		root := layouttest.CheckImportFrom(t, layout, writeTree(t, filepath.Join(t.TempDir(), "other"), smallTree()), st, openStore(t))
		if shown := layouttest.Entries(t, st, layout, layouts.Root{Name: "mine", Marker: "m"}); len(shown) != 0 || root.Name != "other" {
			t.Errorf("a conversation of the root %s has the entries %v in another root", root.Name, shown)
		}
		if sub, ok, err := layout.EntryAt(t.Context(), st, layouts.Root{Name: "mine"}, conv+"meta.json"); ok || err != nil {
			t.Errorf("EntryAt in another root returned %v, error %v", sub, err)
		}
	})
}
