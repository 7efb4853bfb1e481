package tavern_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/stores/tavern"
)

// BenchmarkQueue queues items of 512 bytes, claims and finishes them, each step durable. Each worker does all steps. An
// operation is one item from beginning to end.
func BenchmarkQueue(b *testing.B) {
	for _, backend := range []string{"memory", "local"} {
		for _, workers := range []int{1, 16, 64} {
			b.Run(fmt.Sprintf("%s/%d", backend, workers), func(b *testing.B) { benchQueue(b, backend, workers) })
		}
	}
}

func benchQueue(b *testing.B, backend string, workers int) {
	st := storetest.Open(b, backend)
	ctx, stop := context.WithCancel(b.Context())
	defer stop()
	q := tavern.QueueOf(st, "bench")
	must(b, q.Create(ctx, tavern.QueueSettings{}))
	body := []byte(`"` + strings.Repeat("x", 510) + `"`)
	todo := make(chan struct{}, b.N)
	for range b.N {
		todo <- struct{}{}
	}
	close(todo)
	b.ResetTimer()
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for range todo { // as many are queued as are claimed, so no worker waits forever
				if _, err := q.Enqueue(ctx, tavern.Item{Body: body}); err != nil {
					b.Error(err)
				}
				c, err := q.Next(ctx, fmt.Sprint("w", w))
				if err == nil {
					err = c.Finish(ctx, []byte(`"done"`))
				}
				if err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "items/s")
}
