// Package job prints the sessions of perstack: jobs, their runs, and the steps of a run.
package job

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/show"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/perstack"
)

// shownJob is a job in show -o json.
type shownJob struct {
	ID         string             `json:"id"`
	Status     perstack.JobStatus `json:"status"`
	Stored     bool               `json:"stored"` // false: the job itself was never stored, only its runs
	Expert     string             `json:"expert,omitempty"`
	Steps      int64              `json:"steps"`
	MaxSteps   int64              `json:"maxSteps,omitempty"`
	Usage      perstack.Usage     `json:"usage"`
	StartedAt  events.Timestamp   `json:"startedAt,omitempty"`
	FinishedAt events.Timestamp   `json:"finishedAt,omitempty"`
	Runs       []show.TreeRun     `json:"runs"`
}

// Store shows the sessions of perstack.
type Store struct{}

// Show prints a job with its runs, or one of its runs, or a step of that. With -o json it adds the job to the document
// of its session instead.
func (Store) Show(ctx context.Context, v *show.View) (bool, error) {
	if _, isJob := perstack.JobOfSession(v.Handle.ID()); !isJob || !v.IsWhole() {
		return false, nil
	}
	o, err := v.Handle.Outline(ctx)
	err = projector.Tolerate(err)
	if err != nil || o.Ledger().Kind != events.KindJob {
		return false, err
	}
	if v.Run != "" {
		return showRun(ctx, v, o)
	}
	job, err := jobOf(ctx, v, o)
	if err != nil {
		return true, err
	}
	if v.App.Format != cli.Text {
		return false, v.Add("job", &job)
	}
	p := page{show.NewPage(v)}
	p.job(o, job)
	return true, errors.Join(p.Err, v.App.WarnDamaged(&projector.Session{Subject: o.Subject(), Damaged: o.Damaged()}))
}

// page prints a job.
type page struct{ *show.Page }

// Runs returns facts about the runs of a job, including runs with checkpoints only.
func (Store) Runs(ctx context.Context, handle *tally.Session, o *projector.Outline) ([]show.TreeRun, error) {
	job, ok := perstack.JobOfSession(handle.ID())
	if !ok || o.Ledger().Kind != events.KindJob {
		return nil, nil
	}
	runs, err := perstack.JobOf(handle.Store(), job).Runs(ctx)
	list := make([]show.TreeRun, len(runs))
	for i, r := range runs {
		list[i] = show.TreeRun{Run: show.Run{Type: perstack.RunKind, ID: r.ID, Outcome: r.Outcome}, Expert: r.ExpertKey, Model: r.Model, Steps: r.Steps, Checkpoints: r.Checkpoints,
			Parent: r.Parent, Checkpoint: r.Checkpoint, ToolCall: r.ToolCall}
	}
	return list, err
}

// jobOf reads a job. If the job itself was never stored, its runs and checkpoints say how far it got.
func jobOf(ctx context.Context, v *show.View, o *projector.Outline) (shownJob, error) {
	h := handleOf(v)
	j := shownJob{ID: cli.ID(h.ID()), StartedAt: o.Ledger().CreatedAt}
	reached := j.reach(o.Ledger())
	said, err := h.Load(ctx)
	switch _, invalid := errors.AsType[*events.InvalidError](err); {
	case err == nil:
		j.says(said, o.Ledger())
	case invalid || errors.Is(err, tally.ErrNotFound):
		j.Status = reached.Job()
	default:
		return j, err
	}
	if j.Runs, _, err = show.TreeOf(ctx, v.Handle, o, v.Stores); err != nil {
		return j, err
	}
	if len(j.Runs) > 0 {
		j.Expert = cmp.Or(j.Expert, j.Runs[0].Expert)
	}
	return j, j.spent(ctx, h, said)
}

// reach sets Steps to the highest step of a checkpoint, and returns the status of that checkpoint.
func (j *shownJob) reach(l *projector.Ledger) (status perstack.CheckpointStatus) {
	for _, c := range l.Checkpoints {
		if c.Kind == events.CheckpointStep && !c.Cleared && c.Step >= j.Steps {
			j.Steps, status = c.Step, perstack.CheckpointStatus(c.Status)
		}
	}
	return status
}

// says sets the facts in the job itself.
func (j *shownJob) says(said perstack.Job, l *projector.Ledger) {
	j.Stored, j.Status, j.Expert, j.MaxSteps = true, said.Status, said.CoordinatorExpertKey, said.MaxSteps
	j.Steps, j.FinishedAt = max(j.Steps, said.TotalSteps), events.Timestamp(l.Text("finishedAt"))
}

// spent sets the tokens that the job used. They are the sum over its steps; else the number in the job itself; else
// that in the checkpoint of the highest step.
func (j *shownJob) spent(ctx context.Context, h *perstack.Handle, said perstack.Job) error {
	totals, err := h.Totals(ctx)
	if _, invalid := errors.AsType[*events.InvalidError](err); invalid {
		err = nil // the checkpoint has no usage in the original's form
	}
	j.Usage = totals.Usage
	if totals.Said == 0 && said.Usage.TotalTokens > 0 {
		j.Usage = said.Usage
	}
	return err
}

// job prints a job and its runs.
func (p page) job(o *projector.Outline, j shownJob) {
	head := []render.Styled{{Text: cli.ID(o.Subject().ID), Paint: p.Style.Bold}, {Text: o.Ledger().Kind}}
	if title := o.Ledger().Text("title"); title != "" {
		head = append(head, render.Styled{Text: title})
	}
	p.Parts(append(head, render.Styled{Text: string(j.Status), Paint: func(text string) string { return PaintStatus(p.Style, string(j.Status), text) }}), " · ")
	p.Field("expert", j.Expert)
	steps := strconv.FormatInt(j.Steps, 10)
	if j.MaxSteps > 0 {
		steps += " of " + strconv.FormatInt(j.MaxSteps, 10)
	}
	p.Field("steps", steps)
	p.Field("tokens", j.tokens())
	p.Field("started", cli.Minute(j.StartedAt))
	if j.FinishedAt != "" {
		p.Field("finished", cli.Minute(j.FinishedAt))
	}
	if !j.Stored {
		p.Field("job", "never stored; these facts come from its runs")
	}
	if len(j.Runs) > 0 {
		p.Table(show.TreeTable(p.Style, j.Runs))
	}
}

// tokens returns the numbers of tokens by class, "" if the job used none.
func (j *shownJob) tokens() string {
	u := j.Usage
	if u.TotalTokens == 0 {
		return ""
	}
	part := func(n int64, name string) string {
		if n == 0 {
			return ""
		}
		return fmt.Sprintf(" (%d %s)", n, name)
	}
	return fmt.Sprintf("%d: %d input%s, %d output%s", u.TotalTokens, u.InputTokens, part(u.CachedInputTokens, "cached"), u.OutputTokens, part(u.ReasoningTokens, "reasoning"))
}

// handleOf returns the job that a session is.
func handleOf(v *show.View) *perstack.Handle {
	id, _ := perstack.JobOfSession(v.Handle.ID())
	return perstack.JobOf(v.Handle.Store(), id)
}

// PaintStatus colours the status of a job: green for completed, red for an error, else yellow.
func PaintStatus(style cli.Style, status, cell string) string {
	switch perstack.JobStatus(status) {
	case perstack.JobCompleted:
		return style.Green(cell)
	case perstack.JobStoppedByError:
		return style.Red(cell)
	}
	return style.Yellow(cell)
}
