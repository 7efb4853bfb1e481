package inspect

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/perstack"
)

// jobRun finds a run of the job by its id, or by TYPE/ID.
func jobRun(runs []treeRun, name string) (treeRun, bool) {
	for _, r := range runs {
		if r.Type == perstack.RunKind && (r.ID == name || perstack.RunKind+"/"+r.ID == name) {
			return r, true
		}
	}
	return treeRun{}, false
}

// shownSteps is a step in show --run -o json.
type shownSteps struct {
	Step        int64            `json:"step"`
	Checkpoints []checkpointInfo `json:"checkpoints"`
	Events      int              `json:"events"`
	StartedAt   events.Timestamp `json:"startedAt,omitempty"` // of its first event
}

// checkpointInfo is a checkpoint as a list has it.
type checkpointInfo struct {
	ID     string                    `json:"id"`
	Status perstack.CheckpointStatus `json:"status"`
	Parent string                    `json:"parent,omitempty"`
	Offset events.Offset             `json:"offset"`
}

// shownJobRun is show --run -o json of a run of a job.
type shownJobRun struct {
	Run    treeRun      `json:"run"`
	Steps  []shownSteps `json:"steps"`
	Result events.Raw   `json:"result,omitempty"`
}

// showJobRun shows a run of a job step by step, or one step of it.
func (v *viewer) showJobRun(ctx context.Context, handle *tally.Session, o *projector.Outline) (bool, error) {
	runs, _, err := treeOf(ctx, handle, o)
	if err != nil {
		return true, err
	}
	run, ok := jobRun(runs, v.run)
	if !ok && v.step == nil {
		return false, nil // it may be of another type, else it is not found
	}
	if !ok {
		return true, &cli.CodeError{Code: cli.NotFound, Err: fmt.Errorf("%s has no run %q of a job", o.Subject(), v.run), Hint: "tally runs " + cli.ID(handle.ID()) + " --tree lists them."}
	}
	id, _ := perstack.JobOfSession(handle.ID())
	h := perstack.JobOf(handle.Store(), id)
	v.print = newPrinter(v)
	if v.step != nil {
		return true, v.showStep(ctx, h, run)
	}
	steps, err := stepsOf(ctx, h, run.ID)
	if err != nil {
		return true, err
	}
	if v.app.Format != cli.Text {
		shown := shownJobRun{Run: run, Steps: steps}
		if run.Offset != 0 {
			if shown.Result, err = h.EventBytes(ctx, run.Offset); err != nil {
				return true, err
			}
		}
		return true, cli.WriteJSON(v.app.Out, v.app.Format, shown)
	}
	v.printRun(o, run)
	if len(steps) > 0 {
		v.print.table(stepTable(v.app.Style(), steps))
	}
	return true, v.print.err
}

// printRun says which run it is, and who delegated to it.
func (v *viewer) printRun(o *projector.Outline, run treeRun) {
	p := v.print
	outcome := cmp.Or(run.Outcome, "pending")
	head := []render.Styled{{Text: cli.ID(run.ID), Paint: p.style.Bold}, {Text: run.Type + " of " + cli.ID(o.Subject().ID)}}
	if run.Time != "" {
		head = append(head, render.Styled{Text: minute(run.Time)})
	}
	head = append(head, render.Styled{Text: outcome, Paint: func(text string) string { return paintOutcome(p.style, run.Outcome, text) }})
	p.parts(head, " · ")
	p.field("expert", run.Expert)
	p.field("model", run.Model)
	if run.Parent != "" {
		p.field("by", fmt.Sprintf("run %s, checkpoint %s, call %s", run.Parent, cmp.Or(run.Checkpoint, "-"), cmp.Or(run.ToolCall, "-")))
	}
	if run.Withdrawn {
		p.field("withdrawn", "what it is about was rewound")
	}
}

// stepsOf lists the steps of a run, by their number.
func stepsOf(ctx context.Context, h *perstack.Handle, run string) ([]shownSteps, error) {
	var list []shownSteps
	byNumber := make(map[int64]int)
	step := func(n int64) *shownSteps {
		i, ok := byNumber[n]
		if !ok {
			i = len(list)
			byNumber[n] = i
			list = append(list, shownSteps{Step: n, Checkpoints: []checkpointInfo{}})
		}
		return &list[i]
	}
	had, err := h.EventList(ctx, run)
	if err != nil {
		return nil, err
	}
	for _, e := range had {
		s := step(e.StepNumber)
		if s.Events++; s.Events == 1 {
			s.StartedAt = msTime(e.Timestamp)
		}
	}
	points, err := h.CheckpointList(ctx)
	if err != nil {
		return nil, err
	}
	for _, c := range points {
		if c.RunID == run {
			s := step(c.StepNumber)
			s.Checkpoints = append(s.Checkpoints, infoOf(c))
		}
	}
	slices.SortStableFunc(list, func(a, b shownSteps) int { return cmp.Compare(a.Step, b.Step) })
	return list, nil
}

func infoOf(c perstack.CheckpointInfo) checkpointInfo {
	return checkpointInfo{ID: c.ID, Status: c.Status, Parent: c.Parent, Offset: c.Offset}
}

// stepTable lists steps, each checkpoint of one on a line of its own.
func stepTable(style cli.Style, steps []shownSteps) render.Table {
	t := render.Table{Head: []string{"STEP", "STATUS", "EVENTS", "CHECKPOINT", "OFFSET", "TIME"}, Right: []int{0, 2, 4}, Cut: []int{3, 1}, Drop: []int{4, 5, 2}}
	for _, s := range steps {
		first := []string{strconv.FormatInt(s.Step, 10), "no checkpoint", strconv.Itoa(s.Events), "-", "-", minute(s.StartedAt)}
		for i, c := range s.Checkpoints {
			row := []string{"", string(c.Status), "", cli.ID(c.ID), c.Offset.String(), ""}
			if i == 0 {
				row[0], row[2], row[5] = first[0], first[2], first[5]
			}
			t.Rows = append(t.Rows, row)
		}
		if len(s.Checkpoints) == 0 {
			t.Rows = append(t.Rows, first)
		}
	}
	t.Paint = func(row, column int, cell string) string {
		if column == 1 {
			return paintReached(style, perstack.CheckpointStatus(t.Rows[row][1]), cell)
		}
		return cell
	}
	return t
}

func paintReached(style cli.Style, status perstack.CheckpointStatus, cell string) string {
	if status == "no checkpoint" || status == perstack.CheckpointProceeding || status == perstack.CheckpointInit {
		return style.Dim(cell)
	}
	return paintJob(style, string(status.Job()), cell)
}
