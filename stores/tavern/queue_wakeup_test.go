package tavern_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/stores/tavern"
)

// A lateContext is done from some moment on, but its Done channel does not close: only a caller that another event
// wakes notices the end.
// is woken by another event.
type lateContext struct {
	context.Context
	over atomic.Bool
}

func (c *lateContext) Err() error {
	if c.over.Load() {
		return context.Canceled
	}
	return c.Context.Err()
}

// A worker that is woken and quits at that moment wakes the next one: no worker sleeps while an item is ready.
func TestWokenWorkerGivesUp(t *testing.T) {
	t.Run("Q1 the next worker gets the item at once", func(t *testing.T) {
		ctx, st := queueSoon(t), storetest.Open(t, "memory")
		for n := range 3 { // workers that give up, one after the other
			q := tavern.QueueOf(st, string(rune('a'+n)))
			must(t, q.Create(ctx, tavern.QueueSettings{}))
			type outcome struct {
				c   *tavern.Claim
				err error
			}
			var gone []*lateContext
			left, got := make(chan error, n+1), make(chan outcome, 1)
			for range n + 1 {
				late := &lateContext{Context: ctx}
				gone = append(gone, late)
				go func() {
					_, err := q.Next(late, "gives up")
					left <- err
				}()
				tavern.AwaitWaiting(t, q, len(gone))
			}
			go func() {
				c, err := q.Next(ctx, "stays")
				got <- outcome{c, err}
			}()
			tavern.AwaitWaiting(t, q, n+2)
			for _, late := range gone {
				late.over.Store(true)
			}
			need(q.Enqueue(ctx, tavern.Item{ID: "one", Body: []byte("1")}))
			select {
			case o := <-got:
				if o.err != nil || o.c.Item.ID != "one" {
					t.Fatalf("%+v, %v", o.c, o.err)
				}
			case <-time.After(8 * time.Second):
				t.Fatal("the remaining worker was not woken within 8 seconds")
			}
			for range gone {
				if err := <-left; !errors.Is(err, context.Canceled) {
					t.Errorf("a worker that gave up got %v", err)
				}
			}
		}
	})
}
