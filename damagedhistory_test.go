package tally_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
)

// A position of a document with lost records is never another revision than without the loss.
func TestDamagedHistory(t *testing.T) {
	testkit.NotUnderRace(t) // the test has no concurrency
	t.Run("net T2 a position is the same revision as before the loss, or damaged", func(t *testing.T) {
		rapid.Check(t, func(rt *rapid.T) {
			ctx := context.Background()
			mem := sharedMem{memlog.New(memlog.Config{})}
			st, after := on(t, mem, tally.Config{}), on(t, mem, tally.Config{})
			defer func() { st.Close(); after.Close() }()
			n := rapid.IntRange(1, 6).Draw(rt, "records")
			positions := []string{"head"}
			for i := range n {
				e := documentSteps[rapid.SampledFrom([]string{"write", "write", "write", "delete", "foreign"}).Draw(rt, "record")]
				if e.Type == events.TypeDocumentWritten {
					e.Data = fmt.Append(nil, "text ", i)
				}
				if _, err := st.Append(ctx, events.Document("default", "doc", "a"), log.At(events.Offset(i)), e); err != nil {
					rt.Fatal(err)
				}
				positions = append(positions, fmt.Sprint("@", i+1), fmt.Sprint("#", i+1), fmt.Sprint("~", i))
			}
			says := func(st *tally.Store, position string) string {
				doc, err := st.Documents().ReadAt(ctx, "doc", "a", position)
				if err != nil {
					return kindOf(err)
				}
				return fmt.Sprintf("%v: %s", doc.Offset, doc.Data)
			}
			want := make(map[string]string)
			for _, p := range positions {
				want[p] = says(st, p)
			}
			damaged := rapid.SliceOfNDistinct(rapid.IntRange(1, n), 1, 2, rapid.ID[int]).Draw(rt, "damaged")
			for _, at := range damaged {
				mem.Damage(events.Offset(at))
			}
			for _, p := range positions {
				have := says(after, p)
				isBefore := p[0] == '@' && p < fmt.Sprint("@", slices.Min(damaged)) // the loss is behind it
				if have != want[p] && (have != "damaged" || isBefore) {
					rt.Errorf("without the records %v, the document at %s is %q, want %q", damaged, p, have, want[p])
				}
			}
		})
	})
}
