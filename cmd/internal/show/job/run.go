package job

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/show"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/perstack"
)

// jobRun finds a run of a job by its id, or by TYPE/ID.
func jobRun(runs []show.TreeRun, name string) (show.TreeRun, bool) {
	for _, r := range runs {
		if r.Type == perstack.RunKind && (r.ID == name || perstack.RunKind+"/"+r.ID == name) {
			return r, true
		}
	}
	return show.TreeRun{}, false
}

// shownSteps is a step in show --run -o json.
type shownSteps struct {
	Step        int64            `json:"step"`
	Checkpoints []checkpointInfo `json:"checkpoints"`
	Events      int              `json:"events"`
	StartedAt   events.Timestamp `json:"startedAt,omitempty"` // of its first event
}

// checkpointInfo is a checkpoint in a list.
type checkpointInfo struct {
	ID     string                    `json:"id"`
	Status perstack.CheckpointStatus `json:"status"`
	Parent string                    `json:"parent,omitempty"`
	Offset events.Offset             `json:"offset"`
}

// shownRun is the document of show --run -o json.
type shownRun struct {
	Run    show.TreeRun `json:"run"`
	Steps  []shownSteps `json:"steps"`
	Result events.Raw   `json:"result,omitempty"`
}

// showRun prints a run step by step, or one of its steps. If the session has no such run of a job, showRun returns
// false: the run may be of another type.
func showRun(ctx context.Context, v *show.View, o *projector.Outline) (bool, error) {
	runs, _, err := show.TreeOf(ctx, v.Handle, o, v.Stores)
	if err != nil {
		return true, err
	}
	run, ok := jobRun(runs, v.Run)
	if !ok && v.Step == nil {
		return false, nil
	}
	if !ok {
		return true, &cli.CodeError{Code: cli.NotFound, Err: fmt.Errorf("%s has no run %q of a job", o.Subject(), v.Run), Hint: "tally runs " + cli.ID(v.Handle.ID()) + " --tree lists them."}
	}
	h := handleOf(v)
	if v.Step != nil {
		return true, showStep(ctx, v, h, run)
	}
	steps, err := stepsOf(ctx, h, run.ID)
	if err != nil {
		return true, err
	}
	if v.App.Format != cli.Text {
		shown := shownRun{Run: run, Steps: steps}
		if run.Offset != 0 {
			if shown.Result, err = h.EventBytes(ctx, run.Offset); err != nil {
				return true, err
			}
		}
		return true, cli.WriteJSON(v.App.Out, v.App.Format, shown)
	}
	p := page{show.NewPage(v)}
	p.run(o, run)
	if len(steps) > 0 {
		p.Table(stepTable(p.Style, steps))
	}
	return true, p.Err
}

// run prints the header of a run: its id, outcome, expert and model, and the run that delegated to it.
func (p page) run(o *projector.Outline, run show.TreeRun) {
	outcome := cmp.Or(run.Outcome, "pending")
	head := []render.Styled{{Text: cli.ID(run.ID), Paint: p.Style.Bold}, {Text: run.Type + " of " + cli.ID(o.Subject().ID)}}
	if run.Time != "" {
		head = append(head, render.Styled{Text: cli.Minute(run.Time)})
	}
	head = append(head, render.Styled{Text: outcome, Paint: func(text string) string { return show.PaintOutcome(p.Style, run.Outcome, text) }})
	p.Parts(head, " · ")
	p.Field("expert", run.Expert)
	p.Field("model", run.Model)
	if run.Parent != "" {
		p.Field("by", fmt.Sprintf("run %s, checkpoint %s, call %s", run.Parent, cmp.Or(run.Checkpoint, "-"), cmp.Or(run.ToolCall, "-")))
	}
	if run.Withdrawn {
		p.Field("withdrawn", "what it is about was rewound")
	}
}

// stepsOf lists the steps of a run by number.
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

// stepTable returns a table of steps with a line for each checkpoint.
func stepTable(style cli.Style, steps []shownSteps) render.Table {
	t := render.Table{Head: []string{"STEP", "STATUS", "EVENTS", "CHECKPOINT", "OFFSET", "TIME"}, Right: []int{0, 2, 4}, Cut: []int{3, 1}, Drop: []int{4, 5, 2}}
	for _, s := range steps {
		first := []string{strconv.FormatInt(s.Step, 10), "no checkpoint", strconv.Itoa(s.Events), "-", "-", cli.Minute(s.StartedAt)}
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

// paintReached colours the status of a checkpoint like that of a job, and dims it if the run went on.
func paintReached(style cli.Style, status perstack.CheckpointStatus, cell string) string {
	if status == "no checkpoint" || status == perstack.CheckpointProceeding || status == perstack.CheckpointInit {
		return style.Dim(cell)
	}
	return PaintStatus(style, string(status.Job()), cell)
}
