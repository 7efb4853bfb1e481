// Command workflow runs a workflow whose first worker is lost in the middle. The next worker continues as the template
// says.
package main

import (
	"context"
	"fmt"
	"time"

	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/stores/tavern"
)

const template = `{
	"initial": "build", "recovery": "restart",
	"states": {
		"build":   {"to": ["test"]},
		"test":    {"to": ["build", "shipped"], "recovery": {"state": "build"}},
		"shipped": {"end": true}
	}
}`

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
	workflows := tavern.WorkflowsOf(st)
	must(workflows.Create(ctx, "release", []byte(template)))
	flow := must(workflows.Start(ctx, "release", tavern.FlowOptions{ID: "release-7", Input: []byte(`{"version": 7}`)}))

	// The first worker gets as far as the tests and then disappears: its lease ends.
	first := must(flow.Claim(ctx, "worker-1", time.Minute))
	must(0, first.Move(ctx, "test"))
	lost := must(flow.Due(ctx, first.Until.Add(time.Second))) // a minute later; Recover asks for now
	must(st.AppendAll(ctx, lost.Parts...))
	fmt.Println(lost.Why)
	fmt.Println("late:", first.Move(ctx, "shipped") != nil)

	// The next worker finds the flow where the template says: after a lost test worker it starts with a build.
	next := must(flow.Claim(ctx, "worker-2", time.Minute))
	for _, to := range []string{"test", "shipped"} {
		fmt.Println("in", must(flow.State(ctx)).State)
		must(0, next.Move(ctx, to))
	}
	must(0, next.End(ctx, []byte(`{"url": "https://example.org/7"}`)))
	for _, v := range must(flow.State(ctx)).Visits() {
		fmt.Println(v.Step, v.State, v.Lost)
	}
}
