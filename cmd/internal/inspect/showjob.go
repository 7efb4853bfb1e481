package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/perstack"
)

// shownJob is what show -o json has of a job beside its session.
type shownJob struct {
	ID         string             `json:"id"`
	Status     perstack.JobStatus `json:"status"`
	Stored     bool               `json:"stored"` // false: nothing says more of it than its runs
	Expert     string             `json:"expert,omitempty"`
	Steps      int64              `json:"steps"`
	MaxSteps   int64              `json:"maxSteps,omitempty"`
	Usage      perstack.Usage     `json:"usage"`
	StartedAt  events.Timestamp   `json:"startedAt,omitempty"`
	FinishedAt events.Timestamp   `json:"finishedAt,omitempty"`
	Runs       []treeRun          `json:"runs"`
}

// asJob reports whether what is asked for is a job as a whole, and not turns of it.
func (v *viewer) asJob(id string) bool {
	_, isJob := perstack.JobOfSession(id)
	return isJob && v.at == "" && v.thread == "" && v.last == 0 && !v.all && !v.raw && !v.follow && !v.traces
}

// showJob shows what a job is, or with --run one of its runs, or with --step a step of
// that. It is false if the session is no job, or the run none of a job's.
func (v *viewer) showJob(ctx context.Context, handle *tally.Session) (bool, error) {
	o, err := handle.Outline(ctx)
	err = projector.Tolerate(err)
	if err != nil || o.Ledger().Kind != events.KindJob {
		return false, err
	}
	switch {
	case v.run != "":
		return v.showJobRun(ctx, handle, o)
	}
	job, err := jobOf(ctx, handle, o)
	if err != nil {
		return true, err
	}
	if v.app.Format != cli.Text {
		v.job = &job // beside its turns
		return false, nil
	}
	v.printJob(o, job)
	return true, errors.Join(v.print.err, v.app.WarnDamaged(&projector.Session{Subject: o.Subject(), Damaged: o.Damaged()}))
}

// jobOf says what is known of a job: what it says of itself, and where nobody stored it,
// what its runs do.
func jobOf(ctx context.Context, handle *tally.Session, o *projector.Outline) (shownJob, error) {
	id, _ := perstack.JobOfSession(handle.ID())
	h := perstack.JobOf(handle.Store(), id)
	j := shownJob{ID: cli.ID(id), StartedAt: o.Ledger().CreatedAt}
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
	if j.Runs, _, err = treeOf(ctx, handle, o); err != nil {
		return j, err
	}
	if len(j.Runs) > 0 {
		j.Expert = cmp.Or(j.Expert, j.Runs[0].Expert)
	}
	return j, j.spent(ctx, h, said)
}

// reach notes how far the checkpoints go, and returns the status of the last of them.
func (j *shownJob) reach(l *projector.Ledger) (status perstack.CheckpointStatus) {
	for _, c := range l.Checkpoints {
		if c.Kind == events.CheckpointStep && !c.Cleared && c.Step >= j.Steps {
			j.Steps, status = c.Step, perstack.CheckpointStatus(c.Status)
		}
	}
	return status
}

// says takes what the job says of itself.
func (j *shownJob) says(said perstack.Job, l *projector.Ledger) {
	j.Stored, j.Status, j.Expert, j.MaxSteps = true, said.Status, said.CoordinatorExpertKey, said.MaxSteps
	j.Steps, j.FinishedAt = max(j.Steps, said.TotalSteps), events.Timestamp(l.Text("finishedAt"))
}

// spent adds up what the job took: what its steps say, else what it says itself, else what
// its checkpoint of the largest step does.
func (j *shownJob) spent(ctx context.Context, h *perstack.Handle, said perstack.Job) error {
	totals, err := h.Totals(ctx)
	if _, invalid := errors.AsType[*events.InvalidError](err); invalid {
		err = nil // that checkpoint does not say it in the original's words
	}
	j.Usage = totals.Usage
	if totals.Said == 0 && said.Usage.TotalTokens > 0 {
		j.Usage = said.Usage
	}
	return err
}

// printJob prints a job and its runs.
func (v *viewer) printJob(o *projector.Outline, j shownJob) {
	p := newPrinter(v)
	v.print = p
	head := []render.Styled{{Text: cli.ID(o.Subject().ID), Paint: p.style.Bold}, {Text: o.Ledger().Kind}}
	if title := o.Ledger().Text("title"); title != "" {
		head = append(head, render.Styled{Text: title})
	}
	p.parts(append(head, render.Styled{Text: string(j.Status), Paint: func(text string) string { return paintJob(p.style, string(j.Status), text) }}), " · ")
	p.field("expert", j.Expert)
	steps := strconv.FormatInt(j.Steps, 10)
	if j.MaxSteps > 0 {
		steps += " of " + strconv.FormatInt(j.MaxSteps, 10)
	}
	p.field("steps", steps)
	p.field("tokens", j.tokens())
	p.field("started", minute(j.StartedAt))
	if j.FinishedAt != "" {
		p.field("finished", minute(j.FinishedAt))
	}
	if !j.Stored {
		p.field("job", "never stored; what is known of it is known of its runs")
	}
	if len(j.Runs) > 0 {
		p.table(treeTable(v.app, j.Runs))
	}
}

// tokens says how many the job took, and of which sort.
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

// table prints a table below an empty line.
func (p *printer) table(t render.Table) {
	paint := t.Paint
	t.Paint = func(row, column int, cell string) string {
		if row < 0 {
			return p.style.Bold(cell)
		}
		return paint(row, column, cell)
	}
	p.printf("\n%s\n", strings.Join(t.Lines(p.width), "\n"))
}
