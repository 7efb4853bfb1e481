// Command queue runs a queue and two workers: each item is done once, by the worker that comes first, and an item that
// never succeeds ends among the dead.
package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/stores/tavern"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func main() {
	ctx := context.Background()
	st := must(embedded.Open(ctx, embedded.Options{Backend: "memory"}))
	defer st.Close()
	q := tavern.QueueOf(st, "pages")
	must(0, q.Create(ctx, tavern.QueueSettings{MaxAttempts: 2, OnEmpty: "stop"}))
	for n := range 10 {
		must(q.Enqueue(ctx, tavern.Item{ID: fmt.Sprintf("page-%d", n), Body: fmt.Appendf(nil, `{"page": %d}`, n)}))
	}

	var workers sync.WaitGroup
	for _, name := range []string{"worker-1", "worker-2"} {
		workers.Go(func() { work(ctx, q, name) })
	}
	workers.Wait()
	for _, state := range []tavern.ItemState{tavern.ItemDone, tavern.ItemDead} {
		list, _, err := q.List(ctx, tavern.ListQuery{States: []tavern.ItemState{state}})
		fmt.Println(len(must(list, err)), state)
	}
}

// work takes items until the queue is empty, waiting as long as the queue says.
func work(ctx context.Context, q *tavern.Queue, name string) {
	for {
		c, err := q.TryClaim(ctx, name)
		if empty, ok := errors.AsType[*tavern.EmptyError](err); ok && empty.OnEmpty == "stop" {
			return
		}
		switch {
		case must(c, err).Item.ID == "page-7": // broken: every worker fails
			must(0, c.Fail(ctx, "not a page", true))
		default:
			must(0, c.Finish(ctx, []byte(`"read"`)))
		}
	}
}
