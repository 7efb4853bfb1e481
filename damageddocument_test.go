package tally_test

import (
	"context"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
)

// documentSteps append records to the document "a": revisions, and records that are not. A deletion of a missing
// document is void.
var documentSteps = map[string]events.Event{
	"write":   {Type: events.TypeDocumentWritten, ContentType: "text/plain", Data: []byte("x")},
	"delete":  {Type: events.TypeDocumentDeleted, Data: []byte(`{"reason":"done"}`)},
	"foreign": {Type: "com.example.x"},
}

// readOf returns what Read says about a document whose newest readable revision is a write.
func readOf(steps []string, damaged []int) (isKnown bool, says string) {
	says = "done"
	for n := len(steps); n > 0; n-- {
		switch isLost := slices.Contains(damaged, n); {
		case isLost:
			says = "damaged"
		case steps[n-1] == "write":
			return true, says
		case steps[n-1] == "delete":
			return false, ""
		}
	}
	return false, ""
}

func TestDamagedDocument(t *testing.T) {
	testkit.NotUnderRace(t) // the test has no concurrency
	calls := map[string]func(ctx context.Context, d *tally.Documents, base events.Offset) error{
		"Read": func(ctx context.Context, d *tally.Documents, _ events.Offset) error {
			return second(d.Read(ctx, "doc", "a"))
		},
		"Update": func(ctx context.Context, d *tally.Documents, base events.Offset) error {
			return second(d.Update(ctx, "doc", "a", base, text("new")))
		},
		"Create": func(ctx context.Context, d *tally.Documents, _ events.Offset) error {
			return second(d.Create(ctx, "doc", "a", text("new")))
		},
		"Save": func(ctx context.Context, d *tally.Documents, _ events.Offset) error {
			return second(d.Save(ctx, "doc", "a", text("new")))
		},
		"Delete": func(ctx context.Context, d *tally.Documents, base events.Offset) error {
			return second(d.Delete(ctx, "doc", "a", base, ""))
		},
		"Tx.Read": func(ctx context.Context, d *tally.Documents, _ events.Offset) error {
			return d.Tx(ctx, func(tx *tally.Tx) error { return second(tx.Read(ctx, "doc", "a")) })
		},
		"Tx.Update": func(ctx context.Context, d *tally.Documents, _ events.Offset) error {
			return d.Tx(ctx, func(tx *tally.Tx) error { return tx.Update(ctx, "doc", "a", text("new")) })
		},
		"Tx.Create": func(ctx context.Context, d *tally.Documents, _ events.Offset) error {
			return d.Tx(ctx, func(tx *tally.Tx) error { return tx.Create(ctx, "doc", "a", text("new")) })
		},
	}
	// after are the outcomes of calls, by that of Read.
	after := map[string]map[string]string{
		"done":      {"Read": "done", "Update": "done", "Create": "exists", "Save": "done", "Delete": "done", "Tx.Read": "done", "Tx.Update": "done", "Tx.Create": "exists"},
		"not found": {"Read": "not found", "Update": "not found", "Create": "done", "Save": "done", "Delete": "not found", "Tx.Read": "not found", "Tx.Update": "not found", "Tx.Create": "done"},
		"damaged":   {"Read": "damaged", "Update": "damaged", "Create": "damaged", "Save": "done", "Delete": "damaged", "Tx.Read": "damaged", "Tx.Update": "damaged", "Tx.Create": "damaged"},
	}
	t.Run("net T2 calls of a damaged document agree, also if its base was remembered", func(t *testing.T) {
		rapid.Check(t, func(rt *rapid.T) {
			ctx := context.Background()
			var names []string
			for name := range documentSteps {
				names = append(names, name)
			}
			slices.Sort(names)
			steps := rapid.SliceOfN(rapid.SampledFrom(append(names, "write", "write")), 1, 8).Draw(rt, "steps")
			damaged := rapid.SliceOfNDistinct(rapid.IntRange(1, len(steps)), 0, 3, rapid.ID[int]).Draw(rt, "damaged")
			remembered := rapid.IntRange(0, len(steps)).Draw(rt, "remembered") // the number of steps before a Read
			// play returns a store with the document, and the revision that a Read finds.
			play := func(isFast bool) (st *tally.Store, end func(), base events.Offset, read error) {
				mem := sharedMem{memlog.New(memlog.Config{})}
				st, other := on(t, mem, tally.Config{}), on(t, mem, tally.Config{})
				for n, step := range append(slices.Clone(steps), "") {
					if n == remembered && isFast {
						second(st.Documents().Read(ctx, "doc", "a"))
					}
					if step == "" {
						break
					}
					if _, err := other.Append(ctx, events.Document("default", "doc", "a"), log.At(events.Offset(n)), documentSteps[step]); err != nil {
						rt.Fatalf("%s: %v", step, err)
					}
				}
				for _, at := range damaged {
					mem.Damage(events.Offset(at))
				}
				doc, err := st.Documents().Read(ctx, "doc", "a")
				base = events.Offset(max(1, 1+slices.Index(steps, "write")))
				for n, step := range steps {
					if step == "write" {
						base = events.Offset(n + 1)
					}
				}
				if err == nil {
					base = doc.Offset
				}
				return st, func() { st.Close(); other.Close() }, base, err
			}
			for name, call := range calls {
				if name == "Create" && slices.Contains(damaged, len(steps)) {
					continue // the log waits long for a record that it expects
				}
				for _, isFast := range []bool{false, true} {
					st, end, base, read := play(isFast)
					if isKnown, want := readOf(steps, damaged); isKnown && kindOf(read) != want {
						rt.Errorf("Read says %s, want %s", kindOf(read), want)
					}
					have, want := kindOf(call(ctx, st.Documents(), base)), after[kindOf(read)][name]
					if have != want {
						rt.Errorf("%s (remembered: %v): %s, want %s, for Read says %s", name, isFast, have, want, kindOf(read))
					}
					end()
				}
			}
		})
	})
	t.Run("net T2 an update of a revision that was lost since it was read is refused", func(t *testing.T) {
		mem := sharedMem{memlog.New(memlog.Config{})}
		st := on(t, mem, tally.Config{})
		base := mustSave(t, st.Documents(), "doc", "x", text("x")).Offset
		mem.Damage(base)
		st.Log.Lose([]log.Hole{{Offset: base, Subject: events.Document("default", "doc", "x").NATS()}}) // as an examination finds it
		if err := second(st.Documents().Update(t.Context(), "doc", "x", base, text("y"))); !events.IsDamage(err) {
			t.Errorf("got %v, want the damage", err)
		}
	})
}
