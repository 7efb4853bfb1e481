package tavern_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/stores/tavern"
)

func TestQueueWaits(t *testing.T) {
	t.Run("net Q1 workers that wait have the items when they are due, without another event", func(t *testing.T) {
		for n := range testkit.Times(8) {
			random := rand.New(rand.NewPCG(uint64(n), 1))
			onFakeClock(t, func(t *testing.T, st *tally.Store) {
				q, begun := tavern.QueueOf(st, "q"), time.Now()
				must(t, q.Create(t.Context(), tavern.QueueSettings{Lease: 300 * 24 * time.Hour}))
				ctx, stop := context.WithTimeout(t.Context(), 100*24*time.Hour)
				defer stop()
				unit := []time.Duration{time.Minute, 17 * time.Hour}[n%2]
				items := 1 + random.IntN(4)
				for i := range items {
					due := begun.Add(time.Duration(1+random.IntN(5)) * unit)
					need(q.Enqueue(t.Context(), tavern.Item{ID: fmt.Sprint(i), DueAt: due, Priority: random.IntN(3)}))
				}
				var working sync.WaitGroup
				for i := range items {
					working.Go(func() {
						c, err := q.Next(ctx, fmt.Sprint("worker ", i))
						if err != nil {
							t.Error(err)
							return
						}
						if late := time.Since(c.Item.DueAt); late < 0 || late > 2*time.Millisecond {
							t.Errorf("a worker had the item %s %v after it was due", c.Item.ID, late)
						}
					})
				}
				working.Wait()
				synctest.Wait()
			})
		}
	})
	t.Run("net Q1 workers that are often overtaken take the highest priority first", func(t *testing.T) {
		onFakeClock(t, func(t *testing.T, st *tally.Store) {
			q, random := tavern.QueueOf(st, "q"), rand.New(rand.NewPCG(1, 1))
			left := make(map[int]int) // number of items by priority
			var items []tavern.Item
			for range 40 {
				p := random.IntN(4)
				items, left[p] = append(items, tavern.Item{Priority: p}), left[p]+1
			}
			need(q.EnqueueMany(t.Context(), items...))
			for i := range items {
				tavern.ContestQueues(st, 64)
				c := need(q.TryClaim(t.Context(), fmt.Sprint("worker ", i)))
				for p := c.Item.Priority + 1; p < 4; p++ {
					if left[p] > 0 {
						t.Fatalf("a worker had an item of the priority %d, and %d of %d are free", c.Item.Priority, left[p], p)
					}
				}
				left[c.Item.Priority]--
			}
		})
	})
}
