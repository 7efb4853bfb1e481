package ailoopdir_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/testkit/layouttest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/stores/ailoop/ailoopdir"
)

func TestEntries(t *testing.T) {
	l, root := ailoopdir.Layout{}, layouts.Root{Name: "chats", Marker: "m"}
	open := func() layouts.Target { return openStore(t) }
	none := func(events.Subject) bool { return false }
	t.Run("H-05 a file for each history, from any storage", rapid.MakeCheck(func(rt *rapid.T) {
		g, files := generator{rt}, make(map[string]string)
		for i := range rapid.IntRange(1, 4).Draw(rt, "files") {
			files[fmt.Sprintf(g.pick("name", "chat-%d.json", "=41%d.json", "\xff%d.json", "%d.x.json"), i)] = g.snapshot()
		}
		st := openStore(t)
		if r, err := l.ImportFrom(t.Context(), st, layouttest.InMemory(t, files, 0o600), root, layouts.ImportOptions{}); err != nil || r.Added != len(files) {
			rt.Fatalf("the report is %+v, error %v", r, err)
		}
		have, _ := layouttest.AllFiles(t, layouttest.CheckEntries(t, st, l, root))
		layouttest.MustEqual(t, files, have)
		layouttest.CheckAlone(t, l, root, st, open)
		layouttest.CheckEdits(t, l, root, st, rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1)), 1)
		layouttest.CheckEntries(t, st, l, root)
		layouttest.CheckRemovals(t, l, root, st, none)
	}))
	t.Run("H-05 from a folder as from memory", func(t *testing.T) {
		a, b := openStore(t), openStore(t)
		path := writeFile(t, "chat.txt", pretty(t, "true,false", message1, message2))
		if _, err := l.Import(t.Context(), a, path, layouts.ImportOptions{}); err != nil {
			t.Fatal(err)
		}
		shown := layouttest.Entries(t, a, l, rootOf(t, a, "history/chat.txt"))
		if len(shown) != 1 {
			t.Fatalf("got %d entries", len(shown))
		}
		layouttest.CheckEntries(t, a, l, rootOf(t, a, "history/chat.txt"))
		if _, err := l.ImportFrom(t.Context(), b, layouttest.InMemory(t, map[string]string{"chat.txt": pretty(t, "true,false", message1, message2)}, 0o644), root, layouts.ImportOptions{Part: true}); err != nil {
			t.Fatal(err)
		}
		if x, y := sessionOf(t, a, "history/chat.txt"), sessionOf(t, b, "history/chat.txt"); x != 2 || y != 2 {
			t.Errorf("the sessions have %d and %d messages", x, y)
		}
	})
	t.Run("B-49 an imported history is in a tree like others", func(t *testing.T) {
		st := openStore(t)
		path := writeFile(t, "chat.txt", pretty(t, "true,false", message1, message2))
		if _, err := l.Import(t.Context(), st, path, layouts.ImportOptions{}); err != nil {
			t.Fatal(err)
		}
		live := layouts.Root{Name: layouts.LiveRoot, Marker: "m"}
		if shown := layouttest.CheckEntries(t, st, l, live); len(shown) != 1 {
			t.Fatalf("got %d entries", len(shown))
		}
		layouttest.CheckAlone(t, l, live, st, open)
		layouttest.CheckEdits(t, l, live, st, rand.New(rand.NewPCG(1, 1)), 15)
		layouttest.CheckEntries(t, st, l, live)
		layouttest.CheckRemovals(t, l, live, st, none)
	})
	t.Run("H-05 live histories", func(t *testing.T) {
		st := openStore(t)
		live := layouts.Root{Name: layouts.LiveRoot, Marker: "m"}
		for _, id := range []string{"a", "a/b", strings.Repeat("long", 100)} {
			if _, err := st.Session("history/"+id).Append(t.Context(), log.Any, &events.TurnAppended{Entries: []events.Entry{{Thread: events.MainThread, Turn: events.Raw(message1)}}}); err != nil {
				t.Fatal(err)
			}
		}
		layouttest.CheckEntries(t, st, l, live)
		layouttest.CheckEdits(t, l, live, st, rand.New(rand.NewPCG(1, 1)), 20)
		layouttest.CheckEntries(t, st, l, live)
		layouttest.CheckRemovals(t, l, live, st, none)
	})
}

// rootOf returns the root from which a session was imported.
func rootOf(t *testing.T, st layouts.Source, id string) layouts.Root {
	t.Helper()
	s, err := st.Loader().Session(t.Context(), events.Session(st.Namespace(), id), 0)
	if err != nil {
		t.Fatal(err)
	}
	return layouts.Root{Name: s.Ledger.Origin().Root, Marker: s.Ledger.Origin().Marker}
}
