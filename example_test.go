package tally_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
)

func Example() {
	dir, err := os.MkdirTemp("", "tally-example-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	if err := chat(context.Background(), dir); err != nil {
		panic(err)
	}
	// Output:
	// 2 turns after the rewind
	// 4 turns after the undo
}

func chat(ctx context.Context, dir string) error {
	st, err := embedded.Open(ctx, embedded.Options{Store: dir})
	if err != nil {
		return err
	}
	defer st.Close()

	s := st.Session("support-42")
	for _, text := range []string{"Hello!", "Hi, how can I help?", "My order is late.", "Which order?"} {
		turn, err := json.Marshal(map[string]string{"role": "user", "content": text})
		if err != nil {
			return err
		}
		// When AppendTurns returns, the turn is on disk.
		if _, err := s.AppendTurns(ctx, events.MainThread, turn); err != nil {
			return err
		}
	}

	back, err := s.PlanRewind(ctx, "#2", "wrong way") // what would leave, what would return
	if err != nil {
		return err
	}
	if _, err := s.Move(ctx, back); err != nil {
		return err
	}
	state, err := s.Load(ctx, "head")
	if err != nil {
		return err
	}
	fmt.Println(len(state.Threads.Turns(events.MainThread)), "turns after the rewind")

	undo, err := s.PlanUndo(ctx) // nothing was deleted
	if err != nil {
		return err
	}
	if _, err := s.Move(ctx, undo); err != nil {
		return err
	}
	state, err = s.Load(ctx, "head")
	if err != nil {
		return err
	}
	fmt.Println(len(state.Threads.Turns(events.MainThread)), "turns after the undo")
	return nil
}
