package tally_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/schedule"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
	"github.com/tallylog/tally/projector"
)

// atMost bounds the wait for changes that a watch must yield.
const atMost = 8 * time.Second

// watchedAt watches the changes of documents up to a last one, and lists them. It continues when it is told that it is
// too slow. A point that the watch passes is passed to points, and at "waiting" last is called once.
func watchedAt(t *testing.T, st *tally.Store, points *schedule.Points, last func()) (seen []events.Offset) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), atMost)
	defer cancel()
	isOver := false
	defer tally.Reach(func(point string) {
		if points.Reached(point); point == "waiting" && !isOver {
			isOver = true
			last()
		}
	})()
	for after := events.Offset(0); ; {
		for c, err := range st.Documents().Watch(ctx, projector.DocumentQuery{Kind: "doc"}, after) {
			if lag, ok := errors.AsType[*tally.LaggedError](err); ok {
				after = lag.After
				break
			}
			if err != nil {
				t.Fatalf("the watch ended after %d changes: %v", len(seen), err)
			}
			if seen = append(seen, c.Offset); c.Subject.ID == "last" {
				return seen
			}
		}
		if ctx.Err() != nil {
			t.Fatalf("the last change did not come within %v, after %d changes", atMost, len(seen))
		}
	}
}

func TestWatchMeanwhile(t *testing.T) {
	testkit.NotUnderRace(t) // tally.Reach changes a variable of all watches
	const many = 5000       // more than wait for a watcher
	t.Run("net T3 a watch that is overtaken between any two steps reads on, and repeats nothing", func(t *testing.T) {
		schedule.Each(t, func(t *testing.T, points *schedule.Points) {
			mem := sharedMem{memlog.New(memlog.Config{})}
			st, other := on(t, mem, tally.Config{}), on(t, mem, tally.Config{})
			defer st.Close()
			defer other.Close()
			var want []events.Offset
			write := func(id string) { want = append(want, mustSave(t, other.Documents(), "doc", id, text("x")).Offset) }
			for range 3 {
				write("x")
			}
			points.Do(func() {
				pending := make([]*tally.Pending, many)
				doc := events.Document("default", "doc", "y")
				for i := range pending {
					e := events.Event{Type: events.TypeDocumentWritten, ContentType: "text/plain", Data: []byte("y")}
					pending[i] = other.Log.AppendAsync(t.Context(), doc, log.Any, other.Stamp(e))
				}
				for _, p := range pending {
					ack, err := p.Wait(t.Context())
					if err != nil {
						t.Error(err)
					}
					want = append(want, ack.Last)
				}
				if !tally.Offered(st, want[len(want)-1], atMost) {
					t.Error("the changes were not offered to the watch in time")
				}
			})
			have := watchedAt(t, st, points, func() { write("last") })
			if !slices.Equal(have, want) {
				t.Errorf("%d changes were seen, want %d, each once and in order", len(have), len(want))
			}
		})
	})
	t.Run("net T3 a watch repeats nothing that its caller has seen before the reader of the store came there", func(t *testing.T) {
		st := on(t, sharedMem{memlog.New(memlog.Config{})}, tally.Config{})
		d := st.Documents()
		seen := mustSave(t, d, "doc", "x", text("x")).Offset + 1 // another process has shown the next change already
		ctx, cancel := context.WithTimeout(t.Context(), atMost)
		defer cancel()
		isOver := false
		defer tally.Reach(func(point string) {
			if point == "waiting" && !isOver {
				isOver = true
				mustSave(t, d, "doc", "x", text("seen"))
				mustSave(t, d, "doc", "end", text("x"))
			}
		})()
		if have, err := seenBy(ctx, d, projector.DocumentQuery{Kind: "doc"}, seen); len(have) != 1 {
			t.Errorf("the watch yielded %q and %v, want only the change behind the one that was seen", have, err)
		}
	})
	t.Run("net T3 a watch tells that a document that was deleted is purged", func(t *testing.T) {
		st := on(t, sharedMem{memlog.New(memlog.Config{})}, tally.Config{})
		d, ctx := st.Documents(), t.Context()
		for _, id := range []string{"a", "b"} {
			mustSave(t, d, "doc", id, text("x"))
		}
		err := errors.Join(second(d.Delete(ctx, "doc", "a", 0, "done")), d.Purge(ctx, "doc", "a"), d.Purge(ctx, "doc", "b"))
		if err != nil {
			t.Fatal(err)
		}
		mustSave(t, d, "doc", "end", text("x"))
		have, err := seenBy(ctx, d, projector.DocumentQuery{Kind: "doc"}, 0)
		if want := []string{"a", "b", "a!done", "a!purged", "b!purged", "end"}; err != nil || !slices.Equal(have, want) {
			t.Errorf("got %q, %v, want %q", have, err, want)
		}
	})
}
