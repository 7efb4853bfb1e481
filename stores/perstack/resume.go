package perstack

import (
	"context"
	"errors"
	"strconv"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
)

// Resume begins the next step after a checkpoint. "" selects the job's latest checkpoint: that with the largest step,
// the last saved of several. Resume stores and returns a copy of the checkpoint with a new id and the next step number.
// Later checkpoints stay: two resumes of one checkpoint are two branches. A job that had ended becomes running.
func (h *Handle) Resume(ctx context.Context, checkpoint string) (Checkpoint, error) {
	if checkpoint == "" {
		latest, err := h.latest(ctx)
		if err != nil {
			return Checkpoint{}, err
		}
		checkpoint = latest.ID
	}
	raw, err := h.CheckpointBytes(ctx, checkpoint)
	if err != nil {
		return Checkpoint{}, err
	}
	old, err := ParseCheckpoint(raw)
	if err != nil {
		return Checkpoint{}, err
	}
	for _, m := range []events.Field{
		{Name: "id", Value: rawjson.AppendString(nil, h.st.Log.NewID())},
		{Name: "stepNumber", Value: events.Raw(strconv.FormatInt(old.StepNumber+1, 10))},
	} {
		if raw, err = rawjson.SetMember(raw, m.Name, m.Value); err != nil {
			return Checkpoint{}, err
		}
	}
	if _, err := h.saveCheckpoint(ctx, raw, checkpoint, nil); err != nil {
		return Checkpoint{}, err
	}
	if err := h.reopen(ctx); err != nil {
		return Checkpoint{}, err
	}
	return ParseCheckpoint(raw)
}

// reopen sets a job that had ended to running. It does not create a job.
func (h *Handle) reopen(ctx context.Context) error {
	_, err := h.Update(ctx, func(j *Job) error {
		if j.Status != JobRunning {
			j.Status, j.FinishedAt = JobRunning, 0
		}
		return nil
	})
	if errors.Is(err, tally.ErrNotFound) {
		return nil
	}
	return err
}

// latest returns the checkpoint with the largest step, the last saved of several.
func (h *Handle) latest(ctx context.Context) (CheckpointInfo, error) {
	list, err := h.CheckpointList(ctx)
	if err != nil {
		return CheckpointInfo{}, err
	}
	if len(list) == 0 {
		return CheckpointInfo{}, notFound("No checkpoints found for job %s", h.id)
	}
	newest := list[len(list)-1]
	for _, c := range list {
		if c.StepNumber == newest.StepNumber && c.Offset > newest.Offset {
			newest = c
		}
	}
	return newest, nil
}
