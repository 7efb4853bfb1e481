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
	withDir(chat)
	// Output:
	// 2 turns left with the rewind
	// 4 turns after the undo
}

func ExampleStore() {
	withDir(record)
	// Output:
}

func ExampleSession() {
	withDir(handles)
	// Output:
	// @1 1
}

// withDir runs an example with a new folder.
func withDir(example func(context.Context, string) error) {
	dir, err := os.MkdirTemp("", "tally-example-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	if err := example(context.Background(), dir); err != nil {
		panic(err)
	}
}

// handles has the lines of the package's documentation.
func handles(ctx context.Context, dir string) error {
	st, err := embedded.Open(ctx, embedded.Options{Store: dir})
	if err != nil {
		return err
	}
	defer st.Close()

	s := st.Session("support-42")
	ack, err := s.AppendTurns(ctx, events.MainThread, json.RawMessage(`{"role":"user","content":"hi"}`))
	if err != nil {
		return err
	}
	state, err := s.Load(ctx, "head")
	if err != nil {
		return err
	}
	fmt.Println(ack.First, len(state.Threads.Turns(events.MainThread)))
	return nil
}

// record is the example of README.md.
func record(ctx context.Context, dir string) error {
	st, err := embedded.Open(ctx, embedded.Options{Store: dir})
	if err != nil {
		return err
	}
	defer st.Close()
	s := st.Session("support-42")
	ask, say := json.RawMessage(`{"role":"user","content":"Hi!"}`), json.RawMessage(`{"role":"assistant","content":"Hm?"}`)
	if _, err := s.AppendTurns(ctx, events.MainThread, ask, say); err != nil { // on disk when it returns
		return err
	}
	plan, err := s.PlanRewind(ctx, "#1", "wrong answer") // which turns leave the session
	if err != nil {
		return err
	}
	_, err = s.Move(ctx, plan) // they stay in the log: PlanUndo restores them
	return err
}

// chat is the longer example of docs/recipes.md.
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
		if _, err := s.AppendTurns(ctx, events.MainThread, turn); err != nil { // when it returns, the turn is on disk
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
	fmt.Println(back.Leaves.Count, "turns left with the rewind")

	undo, err := s.PlanUndo(ctx) // nothing was deleted
	if err != nil {
		return err
	}
	if _, err := s.Move(ctx, undo); err != nil {
		return err
	}
	state, err := s.Load(ctx, "head")
	if err != nil {
		return err
	}
	fmt.Println(len(state.Threads.Turns(events.MainThread)), "turns after the undo")
	return nil
}
