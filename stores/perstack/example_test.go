package perstack_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/stores/perstack"
)

// An agent runtime is killed in the middle of a job, started again, and resumes from the checkpoint of its last step.
func Example() {
	dir, err := os.MkdirTemp("", "tally-example-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	for range 2 {
		if err := agent(context.Background(), dir); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// step 1 with 1 messages
	// step 2 with 2 messages
	// killed
	// step 3 with 3 messages
	// step 4 with 4 messages
	// completed after 4 steps
}

// agent is one run of the program.
func agent(ctx context.Context, dir string) error {
	st, err := embedded.Open(ctx, embedded.Options{Store: dir})
	if err != nil {
		return err
	}
	defer st.Close()
	h := perstack.JobOf(st, "release-notes")
	at, err := h.Resume(ctx, "") // after the latest checkpoint
	if errors.Is(err, tally.ErrNotFound) {
		at, err = begin(ctx, h)
	}
	for err == nil && at.StepNumber <= 4 {
		at, err = step(ctx, h, at)
	}
	if err != nil {
		return err
	}
	job, err := h.Update(ctx, func(j *perstack.Job) error { j.Status = perstack.JobCompleted; return nil })
	fmt.Println(job.Status, "after", job.TotalSteps, "steps")
	return err
}

// begin stores a new job, and returns the checkpoint for its first step.
func begin(ctx context.Context, h *perstack.Handle) (perstack.Checkpoint, error) {
	_, err := h.Create(ctx, perstack.CreateInitialJob(h.ID(), "writer@1.0.0"))
	return perstack.Checkpoint{ID: "c1", JobID: h.ID(), RunID: "run-1", Status: perstack.CheckpointInit, StepNumber: 1,
		Expert: perstack.Expert{Key: "writer@1.0.0", Name: "writer", Version: "1.0.0"}}, err
}

// step does one step and stores its checkpoint. The checkpoint has all messages; the log grows by the new one.
func step(ctx context.Context, h *perstack.Handle, c perstack.Checkpoint) (perstack.Checkpoint, error) {
	answer := fmt.Sprintf(`{"id":"m%d","type":"expertMessage","contents":[{"id":"p","type":"textPart","text":"..."}]}`, c.StepNumber)
	c.Messages = append(c.Messages, events.Raw(answer))
	c.ID, c.Status = fmt.Sprint("step-", c.StepNumber), perstack.CheckpointProceeding
	fmt.Println("step", c.StepNumber, "with", len(c.Messages), "messages")
	if _, err := h.SaveCheckpoint(ctx, c); err != nil {
		return c, err
	}
	if _, err := h.Update(ctx, func(j *perstack.Job) error { j.TotalSteps = c.StepNumber; return nil }); err != nil {
		return c, err
	}
	if c.StepNumber == 2 {
		return c, errors.New("killed")
	}
	c.StepNumber++
	return c, nil
}
