package erratadir_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/testkit/layouttest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/stores/errata/erratadir"
)

// stays reports whether an entry stays when its files are removed.
func stays(entry events.Subject) bool {
	return entry.IsSession() && (entry.ID == "prompts" || entry.ID == "history") || strings.HasSuffix(entry.ID, "/recipes.json")
}

func TestEntries(t *testing.T) {
	l := erratadir.Layout{}
	open := func() layouts.Target { return openStore(t) }
	t.Run("E-34 a folder from any storage, unit by unit", func(t *testing.T) {
		for seed := range layouttest.Seeds(4) {
			files, r := rootTree(), rand.New(rand.NewPCG(seed, 1))
			for i := range 4 {
				for name, content := range generate(fmt.Sprintf("ses_%d", 10+i), r).files() {
					files[name] = content
				}
			}
			for name, content := range map[string]string{"checkpoint.json": marshal(checkpoint{Prompt: "again", AdapterIDs: []string{"m"}}), "recipe.md": "# R\nversion: 1\n", "a/b.bin": "\xff"} {
				files["sessions/ses_2/"+name] = content
			}
			st := openStore(t)
			root := layouttest.CheckImportFrom(t, l, folder(t, files), st, openStore(t))
			layouttest.CheckEntries(t, st, l, root)
			layouttest.CheckAlone(t, l, root, st, open)
			layouttest.CheckEdits(t, l, root, st, r, 15)
			layouttest.CheckEntries(t, st, l, root)
			layouttest.CheckRemovals(t, l, root, st, stays)
		}
	})
	t.Run("B-49 imported sessions are in a tree like others", func(t *testing.T) {
		for seed := range layouttest.Seeds(2) {
			r, files := rand.New(rand.NewPCG(seed, 5)), map[string]string{}
			for i := range 3 {
				maps.Copy(files, generate(fmt.Sprintf("ses_%d", 10+i), r).files())
			}
			layouttest.CheckImported(t, l, folder(t, files), openStore(t), open, r)
		}
	})
	t.Run("E-41 live sessions", func(t *testing.T) {
		st, root := openStore(t), layouts.Root{Name: layouts.LiveRoot, Marker: "m"}
		turn := &events.TurnAppended{Entries: []events.Entry{{Thread: "m", Turn: events.Raw(`{"role":"user","content":"q"}`)}}}
		live(t, st, "ses_1", log.Any, &events.SessionCreated{Kind: events.KindPanel, CreatedAt: "2026-08-22T10:00:00Z", Models: []string{"m"}})
		live(t, st, "ses_1", log.Any, turn)
		live(t, st, "prompts", log.Any, &events.SessionCreated{Kind: events.KindPrompts, CreatedAt: "2026-08-22T10:00:00Z"})
		live(t, st, "prompts", log.Any, &events.TurnAppended{Entries: []events.Entry{{Thread: "prompts", Turn: events.Raw(`"q"`)}}})
		recipe := func(hash string) {
			e := events.Event{ID: hash, Source: "urn:test:live", Type: events.TypeDocumentWritten, Subject: events.Document(st.Name, "recipe", hash), ContentType: "text/markdown", Data: []byte("# R\n")}
			if _, err := st.Append(t.Context(), e.Subject, log.Any, e); err != nil {
				t.Fatal(err)
			}
		}
		recipe("rcp_1")
		shown := layouttest.CheckEntries(t, st, l, root)
		if len(shown) != 3 {
			t.Errorf("got %d entries", len(shown))
		}
		layouttest.CheckEdits(t, l, root, st, rand.New(rand.NewPCG(7, 1)), 20)
		recipe("rcp_2")
		layouttest.CheckEntries(t, st, l, root)
		layouttest.CheckRemovals(t, l, root, st, stays)
	})
}
