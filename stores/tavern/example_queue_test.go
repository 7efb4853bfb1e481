package tavern_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/stores/tavern"
)

func ExampleQueue() {
	ctx := context.Background()
	st := need(embedded.Open(ctx, embedded.Options{Backend: "memory"}))
	defer st.Close()

	q := tavern.QueueOf(st, "build")
	if err := q.Create(ctx, tavern.QueueSettings{OnEmpty: "hibernate"}); err != nil {
		panic(err)
	}
	need(q.EnqueueMany(ctx,
		tavern.Item{ID: "docs", Body: []byte(`{"target": "docs"}`)},
		tavern.Item{ID: "fix", Body: []byte(`{"target": "fix"}`), Priority: 9},
		tavern.Item{ID: "release", Body: []byte(`{"target": "release"}`), After: []string{"docs", "fix"}}))
	for {
		c, err := q.TryClaim(ctx, "worker-1")
		if empty, ok := errors.AsType[*tavern.EmptyError](err); ok {
			fmt.Println("nothing to do:", empty.OnEmpty)
			return
		}
		if err != nil {
			panic(err)
		}
		fmt.Printf("attempt %d: %s\n", c.Attempt, c.Item.Body)
		if err := c.Finish(ctx, []byte(`"built"`)); err != nil {
			panic(err)
		}
	}
	// Output:
	// attempt 1: {"target": "fix"}
	// attempt 1: {"target": "docs"}
	// attempt 1: {"target": "release"}
	// nothing to do: hibernate
}
