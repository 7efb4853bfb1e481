package inspect

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/perstack"
)

// treeRun is a run in a tree of runs, below the one that delegated to it.
type treeRun struct {
	listedRun
	Depth       int    `json:"depth"`            // 0: nobody of the session delegated to it
	Parent      string `json:"parent,omitempty"` // the run that did
	Checkpoint  string `json:"checkpoint,omitempty"`
	ToolCall    string `json:"toolCall,omitempty"`
	Expert      string `json:"expert,omitempty"`
	Model       string `json:"model,omitempty"`
	Steps       int64  `json:"steps,omitempty"`
	Checkpoints int    `json:"checkpoints,omitempty"`
}

// treeOf returns the runs of a session, each behind the one that delegated to it, with all
// that are below it. It is false if none was delegated to.
func treeOf(ctx context.Context, handle *tally.Session, o *projector.Outline) ([]treeRun, bool, error) {
	var list []treeRun
	ofJob, err := jobRuns(ctx, handle, o)
	if err != nil {
		return nil, false, err
	}
	known := make(map[string]perstack.Run)
	for _, r := range ofJob {
		known[r.ID] = r
	}
	for _, run := range o.Ledger().Runs {
		live, err := o.IsLive(ctx, run.At)
		if err != nil {
			return nil, false, err
		}
		next := treeRun{listedRun: briefRun(run, !live)}
		if p := run.Parent; p != nil {
			next.Parent, next.Checkpoint, next.ToolCall = p.Run, p.Checkpoint, p.ToolCall
		}
		if r, ok := known[run.ID]; ok && run.Kind == perstack.RunKind {
			next.ofJob(r)
			delete(known, run.ID)
		}
		list = append(list, next)
	}
	for _, r := range ofJob {
		if _, more := known[r.ID]; more { // only checkpoints tell of it
			next := treeRun{listedRun: listedRun{Type: perstack.RunKind, ID: r.ID}}
			next.ofJob(r)
			list = append(list, next)
		}
	}
	return nested(list), slices.ContainsFunc(list, func(r treeRun) bool { return r.Parent != "" }), nil
}

// jobRuns returns the runs of the job that a session is, nil if it is none.
func jobRuns(ctx context.Context, handle *tally.Session, o *projector.Outline) ([]perstack.Run, error) {
	job, ok := perstack.JobOfSession(handle.ID())
	if !ok || o.Ledger().Kind != events.KindJob {
		return nil, nil
	}
	return perstack.JobOf(handle.Store(), job).Runs(ctx)
}

// ofJob adds what a job knows of its run.
func (t *treeRun) ofJob(r perstack.Run) {
	t.Expert, t.Model, t.Steps, t.Checkpoints = r.ExpertKey, r.Model, r.Steps, r.Checkpoints
	t.Parent, t.Checkpoint, t.ToolCall = cmp.Or(t.Parent, r.Parent), cmp.Or(t.Checkpoint, r.Checkpoint), cmp.Or(t.ToolCall, r.ToolCall)
	t.Outcome = cmp.Or(t.Outcome, r.Outcome)
}

// nested orders runs such that each stands below its parent. One whose parent is not there,
// or who is its own ancestor, as what somebody edited may say, stands at the top.
func nested(list []treeRun) []treeRun {
	byID := make(map[string]int)
	below := make(map[string][]int)
	for i, r := range slices.Backward(list) {
		byID[r.ID] = i // the first one of an id
	}
	done := make([]bool, len(list))
	var tree []treeRun
	var add func(i, depth int)
	add = func(i, depth int) {
		if done[i] {
			return
		}
		done[i] = true
		r := list[i]
		r.Depth = depth
		tree = append(tree, r)
		if byID[r.ID] != i {
			return
		}
		for _, child := range below[r.ID] {
			add(child, depth+1)
		}
	}
	for i, r := range list {
		if _, ok := byID[r.Parent]; ok && r.Parent != "" {
			below[r.Parent] = append(below[r.Parent], i)
		}
	}
	for i, r := range list {
		if _, ok := byID[r.Parent]; !ok || r.Parent == "" {
			add(i, 0)
		}
	}
	for i := range list {
		add(i, 0) // those in a circle
	}
	return tree
}

// briefRun says of a run what needs no reading of its results.
func briefRun(run *projector.Run, withdrawn bool) listedRun {
	l := listedRun{Type: run.Kind, ID: run.ID, Time: runTime(run), Versions: len(run.Results), Outcome: run.State, Withdrawn: withdrawn}
	if last := run.Last(); last != nil {
		l.Outcome, l.Offset, l.Size = last.Outcome, last.Offset, last.Size
	}
	return l
}

// asTree prints the runs of a session as a tree; false if none of them was delegated to.
func (r *runLister) asTree(ctx context.Context, handle *tally.Session) (bool, error) {
	o, err := handle.Outline(ctx)
	err = projector.Tolerate(err)
	if err != nil {
		return false, err
	}
	runs, has, err := treeOf(ctx, handle, o)
	if err != nil || !has {
		return false, err
	}
	if r.app.Format != cli.Text {
		return true, cli.WriteList(r.app.Out, r.app.Format, runs)
	}
	return true, r.app.Table(treeTable(r.app, runs))
}

// treeTable is a table of runs, each indented as deep as it is in the tree.
func treeTable(a *cmdutil.App, runs []treeRun) render.Table {
	const id, expert, outcome, steps, model, at = 0, 1, 2, 3, 4, 5
	t := render.Table{Head: []string{"RUN", "EXPERT", "OUTCOME", "STEPS", "MODEL", "TIME"}, Right: []int{steps}, Cut: []int{model, expert, id, outcome}, Drop: []int{at, model, steps, expert}}
	style := a.Style()
	for _, r := range runs {
		text := cmp.Or(r.Outcome, "pending")
		if r.Withdrawn {
			text += ", withdrawn"
		}
		t.Rows = append(t.Rows, []string{indented(cli.ID(r.ID), r.Depth), cmp.Or(r.Expert, "-"), text, tokensOf(r.Steps), cmp.Or(r.Model, "-"), minute(r.Time)})
	}
	t.Paint = func(row, column int, cell string) string {
		switch column {
		case id:
			return cell
		case outcome:
			return paintOutcome(style, runs[row].Outcome, cell)
		}
		return style.Dim(cell)
	}
	return t
}

// maxIndent is how deep runs are indented: what is below stands there too.
const maxIndent = 12

func indented(id string, depth int) string {
	if depth == 0 {
		return id
	}
	return strings.Repeat("  ", min(depth, maxIndent)-1) + "└ " + id
}
