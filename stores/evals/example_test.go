package evals_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/stores/evals"
)

// withStore runs a part of an example on a store in memory.
func withStore(part func(context.Context, *tally.Store) error) {
	ctx := context.Background()
	st, err := embedded.Open(ctx, embedded.Options{Backend: "memory", Namespace: "example"})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := errors.Join(part(ctx, st), st.Close()); err != nil {
		fmt.Println(err)
	}
}

// exampleStep returns a step with a user's message and the answer.
func exampleStep(index int, user, assistant string) (evals.Step, error) {
	in, err := json.Marshal(map[string]string{"role": "user", "content": user})
	if err != nil {
		return evals.Step{}, err
	}
	out, err := json.Marshal(map[string]string{"role": "assistant", "content": assistant})
	if err != nil {
		return evals.Step{}, err
	}
	return evals.NewStep(index, in, out)
}

// List the recorded conversations, their steps and their runs.
func ExampleList() {
	withStore(func(ctx context.Context, st *tally.Store) error {
		hello, err := exampleStep(0, "Hello!", "Hi, how can I help?")
		if err != nil {
			return err
		}
		c, _, err := evals.Save(ctx, st, "support-42", &evals.Data{ID: "support-42", Steps: []evals.Step{hello}})
		if err != nil {
			return err
		}
		if _, err := c.Run(evals.TrajectoryRun, "run-1769171838912-5790h4t").Save(ctx, json.RawMessage(`{"completed":true}`)); err != nil {
			return err
		}

		list, err := evals.List(ctx, st)
		if err != nil {
			return err
		}
		for _, c := range list {
			data, err := c.Load(ctx)
			if err != nil {
				return err
			}
			fmt.Printf("%s: %d step, in %s\n", c.ID(), len(data.Steps), c.Path())
			for _, s := range data.Steps {
				fmt.Printf("  %d %s\n", s.StepIndex(), s.Input())
			}
			runs, err := c.ListRuns(ctx)
			if err != nil {
				return err
			}
			for _, r := range runs {
				at, _ := r.Timestamp()
				fmt.Println(" ", r.Type(), r.ID(), at.Format(time.DateOnly))
			}
		}
		return nil
	})
	// Output:
	// support-42: 1 step, in conversations/support-42
	//   0 {"content":"Hello!","role":"user"}
	//   trajectory run-1769171838912-5790h4t 2026-01-23
}

// Save a whole simulation: get or create the conversation, save its traces, create a run and save the result. Loading
// returns the same data.
func ExampleFromStepTraces() {
	withStore(func(ctx context.Context, st *tally.Store) error {
		c, found, err := evals.Get(ctx, st, "travel")
		if err == nil && !found {
			c, _, err = evals.Create(ctx, st, "travel")
		}
		if err != nil {
			return err
		}
		traces := []evals.StepTrace{{UserMessage: json.RawMessage(`{"role":"user","content":"To Rome."}`),
			AgentMessages: []json.RawMessage{json.RawMessage(`{"role":"assistant","content":"When?"}`)}, Timestamp: "2026-01-23T12:35:42.341Z"}}
		data, err := evals.FromStepTraces(traces, "travel", nil)
		if err != nil {
			return err
		}
		if _, err := c.Save(ctx, data); err != nil {
			return err
		}
		run, err := c.CreateRun(ctx, evals.TrajectoryRun, "")
		if err != nil {
			return err
		}
		if _, err := run.Save(ctx, json.RawMessage(`{"completed":true}`)); err != nil {
			return err
		}

		loaded, err := evals.Of(st, "travel").Load(ctx)
		if err != nil {
			return err
		}
		result, err := evals.Of(st, "travel").Run(run.Type(), run.ID()).Load(ctx)
		if err != nil {
			return err
		}
		fmt.Printf("%d step: %s\n%s: %s\n", len(loaded.Steps), loaded.Steps[0].Input(), result.Type, result.Raw)
		return nil
	})
	// Output:
	// 1 step: {"role":"user","content":"To Rome."}
	// trajectory: {"completed":true}
}

// Write a simulation turn by turn: an acknowledged step survives a crash.
func ExampleConversation_Append() {
	withStore(func(ctx context.Context, st *tally.Store) error {
		var steps []evals.Step
		for i, user := range []string{"I want to go to Rome.", "In May."} {
			s, err := exampleStep(i, user, "Noted.")
			if err != nil {
				return err
			}
			steps = append(steps, s)
		}
		run, err := simulate(ctx, st, steps)
		if err != nil {
			return err
		}
		tr, err := run.Conversation().Trajectory(ctx)
		if err != nil {
			return err
		}
		versions, err := run.Versions(ctx)
		if err != nil {
			return err
		}
		fmt.Println(tr.Meta.Goal, len(tr.Steps), versions[0].Outcome)
		return nil
	})
	// Output:
	// Plan a trip 2 stopped:max-turns
}

// simulate is the example of docs/from-tally-evals.md.
func simulate(ctx context.Context, st *tally.Store, steps []evals.Step) (*evals.Run, error) {
	c, _, err := evals.Create(ctx, st, "travel")
	if err != nil {
		return nil, err
	}
	if _, err := c.SaveTrajectoryMeta(ctx, &evals.TrajectoryMeta{Version: 1, TrajectoryID: "travel", CreatedAt: "2026-01-23T12:35:42.341Z",
		Goal: "Plan a trip", Persona: evals.Persona{Description: "You travel a lot."}}); err != nil {
		return nil, err
	}
	run, err := c.CreateRun(ctx, evals.TrajectoryRun, "")
	if err != nil {
		return nil, err
	}
	for _, s := range steps {
		if _, err := c.Append(ctx, s); err != nil { // when it returns, the step is on disk
			return nil, err
		}
	}
	_, err = run.Save(ctx, json.RawMessage(`{"completed":false,"reason":"max-turns","totalTurns":2}`))
	return run, err
}

// Write a report on a conversation. The report records which steps it judged, and Stale reports when they have
// changed.
func ExampleRun_Save() {
	withStore(func(ctx context.Context, st *tally.Store) error {
		s, err := exampleStep(0, "Hello!", "Hi!")
		if err != nil {
			return err
		}
		c, _, err := evals.Save(ctx, st, "support-42", &evals.Data{ID: "support-42", Steps: []evals.Step{s}})
		if err != nil {
			return err
		}

		data, err := c.Load(ctx) // the judged content
		if err != nil {
			return err
		}
		run, err := c.CreateRun(ctx, evals.TallyRun, "")
		if err != nil {
			return err
		}
		report := json.RawMessage(`{"schemaVersion":1,"runId":"r","createdAt":"2026-01-23T12:37:18.912Z","defs":{"metrics":{},"evals":{},"scorers":{}},"result":{"stepCount":1,"singleTurn":{},"multiTurn":{},"scorers":{}}}`)
		if _, err := run.Judging(data.Revision).Save(ctx, report); err != nil {
			return err
		}
		before, err := run.Stale(ctx)
		if err != nil {
			return err
		}
		if _, err := c.Append(ctx, s); err != nil {
			return err
		}
		after, err := run.Stale(ctx)
		if err != nil {
			return err
		}
		fmt.Println(before, "then", after)

		_, err = run.Save(ctx, json.RawMessage(`{"schemaVersion":2}`))
		fmt.Println(err)
		return nil
	})
	// Output:
	// fresh then stale
	// invalid schemaVersion: 2: want 1
}

// Follow a conversation live: the existing steps first, then new ones.
func ExampleConversation_Follow() {
	withStore(func(ctx context.Context, st *tally.Store) error {
		c := evals.Of(st, "live")
		for i, text := range []string{"one", "two"} {
			s, err := exampleStep(i, text, "ok")
			if err != nil {
				return err
			}
			if _, err := c.Append(ctx, s); err != nil {
				return err
			}
		}
		for u, err := range c.Follow(ctx, 0) {
			if err != nil {
				return err
			}
			fmt.Println(u.Kind, len(u.Steps))
			if u.Kind == evals.StepsAppended {
				break
			}
			s, err := exampleStep(2, "three", "ok")
			if err != nil {
				return err
			}
			if _, err := evals.Of(st, "live").Append(ctx, s); err != nil { // another writer
				return err
			}
		}
		return nil
	})
	// Output:
	// steps loaded 2
	// steps appended 1
}
