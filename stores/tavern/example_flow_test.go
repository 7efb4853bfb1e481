package tavern_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/stores/tavern"
)

// The first worker of a workflow is lost, and the next one continues.
func ExampleFlow() {
	dir, err := os.MkdirTemp("", "tally-example-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	deploy(context.Background(), dir)
	// Output:
	// lost: worker-1
	// recovered: worker "worker-1" was lost
	// late: true
	// worker-2: build, attempt 2
	// flow deploy: "test" does not lead to "live": it leads to "build", "ship"
	// build done 2
	// test done 1
	// ship done 1
}

// deploy panics where a program would return an error.
func deploy(ctx context.Context, dir string) {
	st := need(embedded.Open(ctx, embedded.Options{Store: dir}))
	defer st.Close()
	w := tavern.WorkflowsOf(st)
	need(w.Create(ctx, "deploy", []byte(`{
		"initial": "build", "recovery": "restart",
		"states": {
			"build": {"to": ["test"]},
			"test":  {"to": ["build", "ship"]},
			"ship":  {"to": ["live"], "recovery": "fail"},
			"live":  {"end": true}
		}
	}`)))
	f := need(w.Start(ctx, "deploy", tavern.FlowOptions{ID: "deploy", Owner: "agent/ada"}))

	first := need(f.Claim(ctx, "worker-1", time.Nanosecond))
	fmt.Println("lost:", first.Holder)
	fmt.Println("recovered:", need(f.Recover(ctx))) // as a daemon does when the lease has ended
	fmt.Println("late:", first.Move(ctx, "test") != nil)

	c := need(f.Claim(ctx, "worker-2", time.Minute))
	s := need(f.State(ctx))
	fmt.Printf("%s: %s, attempt %d\n", s.Run.Worker, s.State, s.Attempt)
	for _, to := range []string{"test", "live", "ship", "live"} {
		if err := c.Move(ctx, to); err != nil {
			fmt.Println(err)
		}
	}
	if err := c.End(ctx, nil); err != nil {
		fmt.Println(err)
	}
	for _, step := range need(f.State(ctx)).Steps() {
		fmt.Println(step.State, step.Status, step.Visits)
	}
}
