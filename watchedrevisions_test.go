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
	"github.com/tallylog/tally/projector"
)

func TestWatchedRevisions(t *testing.T) {
	testkit.NotUnderRace(t) // tally.Reach changes a variable of all watches
	t.Run("net T3 a watch tells each revision of the documents that it selects, and no other record", func(t *testing.T) {
		rapid.Check(t, func(rt *rapid.T) {
			ctx, cancel := context.WithTimeout(context.Background(), atMost)
			defer cancel()
			st := on(t, sharedMem{memlog.New(memlog.Config{})}, tally.Config{})
			defer st.Close()
			q := projector.DocumentQuery{Kind: "doc", Owner: rapid.SampledFrom([]string{"", "ann"}).Draw(rt, "owner")}
			var want []string
			owners := make(map[string]string) // of the documents that exist
			last := make(map[string]events.Offset)
			step := func() {
				id, what := rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "document"), rapid.SampledFrom([]string{"write", "write", "delete", "foreign"}).Draw(rt, "record")
				e, had := documentSteps[what], owners[id]
				isTold := false
				switch what {
				case "write":
					owner := rapid.SampledFrom([]string{"ann", "bob"}).Draw(rt, "owner of the revision")
					e = e.WithExtension(events.ExtDoc, events.DocMeta{Owner: owner}.String())
					isTold = q.Owner == "" || owner == q.Owner || had == q.Owner
					owners[id] = owner
				case "delete":
					isTold = had != "" && (q.Owner == "" || had == q.Owner)
					delete(owners, id)
					id += "!done"
				}
				if isTold {
					want = append(want, id)
				}
				ack, err := st.Append(ctx, events.Document("default", "doc", id[:1]), log.At(last[id[:1]]), e)
				if err != nil {
					rt.Fatal(err)
				}
				last[id[:1]] = ack.Last
			}
			n := rapid.IntRange(0, 8).Draw(rt, "records")
			before := rapid.IntRange(0, n).Draw(rt, "records before the watch")
			for range before {
				step()
			}
			isOver := false
			defer tally.Reach(func(point string) {
				if point == "waiting" && !isOver {
					isOver = true
					for range n - before {
						step()
					}
					e := documentSteps["write"].WithExtension(events.ExtDoc, events.DocMeta{Owner: "ann"}.String())
					if _, err := st.Append(ctx, events.Document("default", "doc", "end"), log.Any, e); err != nil {
						rt.Fatal(err)
					}
					want = append(want, "end")
				}
			})()
			if have, err := seenBy(ctx, st.Documents(), q, 0); err != nil || !slices.Equal(have, want) {
				rt.Errorf("the watch told %q, %v, want %q", have, err, want)
			}
		})
	})
}
