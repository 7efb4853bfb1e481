package show

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/projector"
)

// Run is a run of a session as lists show it.
type Run struct {
	Type      string           `json:"type"`
	ID        string           `json:"id"`
	Time      events.Timestamp `json:"time,omitempty"` // from the id; else when the run finished; else when it started
	Outcome   string           `json:"outcome,omitempty"`
	Versions  int              `json:"versions"`            // results of the run
	Stale     *bool            `json:"stale,omitempty"`     // whether the turns that it judged have changed; nil if unknown
	Withdrawn bool             `json:"withdrawn,omitempty"` // the event that created the run was rewound
	Offset    events.Offset    `json:"offset,omitempty"`    // of the newest result
	Size      int              `json:"size,omitempty"`      // bytes in the newest result

	StaleReason string `json:"-"`
}

// RunOf describes a run without reading its results.
func RunOf(run *projector.Run, withdrawn bool) Run {
	l := Run{Type: run.Kind, ID: run.ID, Time: runTime(run), Versions: len(run.Results), Outcome: run.State, Withdrawn: withdrawn}
	if last := run.Last(); last != nil {
		l.Outcome, l.Offset, l.Size = last.Outcome, last.Offset, last.Size
	}
	return l
}

// runTime returns the time in the id of a run: the milliseconds between its first and second dash. If the id has no
// time, runTime returns when the run finished, else when it started.
func runTime(run *projector.Run) events.Timestamp {
	if _, rest, ok := strings.Cut(run.ID, "-"); ok {
		digits, _, _ := strings.Cut(rest, "-")
		if ms, err := strconv.ParseInt(digits, 10, 64); err == nil && ms > 0 && ms < 253402300800000 {
			return events.TimestampOf(time.UnixMilli(ms))
		}
	}
	if last := run.Last(); last != nil && last.FinishedAt != "" {
		return last.FinishedAt
	}
	return run.CreatedAt
}

// PaintOutcome colours the outcome of a run: green for completed, red for failed, else yellow.
func PaintOutcome(style cli.Style, outcome, cell string) string {
	switch {
	case outcome == "completed":
		return style.Green(cell)
	case outcome == "failed":
		return style.Red(cell)
	}
	return style.Yellow(cell)
}

// Tokens formats a number of tokens for a table: a dash for 0, which means unknown.
func Tokens(n int64) string {
	if n == 0 {
		return "-"
	}
	return strconv.FormatInt(n, 10)
}

// TreeRun is a run in a tree, where each run is below the run that delegated to it.
type TreeRun struct {
	Run
	Depth       int    `json:"depth"`            // 0: no run of the session delegated to this one
	Parent      string `json:"parent,omitempty"` // id of the run that delegated to this one
	Checkpoint  string `json:"checkpoint,omitempty"`
	ToolCall    string `json:"toolCall,omitempty"`
	Expert      string `json:"expert,omitempty"`
	Model       string `json:"model,omitempty"`
	Steps       int64  `json:"steps,omitempty"`
	Checkpoints int    `json:"checkpoints,omitempty"`
}

// TreeOf returns the runs of a session in the order of their tree: each run, then all runs below it. It reports whether
// any run was delegated to. Runs that only a store knows come last at their level.
func TreeOf(ctx context.Context, handle *tally.Session, o *projector.Outline, stores []Store) (list []TreeRun, delegated bool, err error) {
	type key struct{ kind, id string }
	known := make(map[key]TreeRun)
	var more []TreeRun
	for _, s := range stores {
		runs, err := s.Runs(ctx, handle, o)
		if err != nil {
			return nil, false, err
		}
		for _, r := range runs {
			known[key{r.Type, r.ID}] = r
		}
		more = append(more, runs...)
	}
	for _, run := range o.Ledger().Runs {
		next := TreeRun{Run: RunOf(run, !o.IsLive(run.At))}
		if p := run.Parent; p != nil {
			next.Parent, next.Checkpoint, next.ToolCall = p.Run, p.Checkpoint, p.ToolCall
		}
		id := key{run.Kind, run.ID}
		if r, ok := known[id]; ok {
			next.complete(r)
			delete(known, id)
		}
		list = append(list, next)
	}
	for _, r := range more {
		if _, left := known[key{r.Type, r.ID}]; left {
			list = append(list, r)
		}
	}
	return nested(list), slices.ContainsFunc(list, func(r TreeRun) bool { return r.Parent != "" }), nil
}

// complete adds the facts that a store knows about a run. Facts from the run's own events stay.
func (t *TreeRun) complete(r TreeRun) {
	t.Expert, t.Model, t.Steps, t.Checkpoints = r.Expert, r.Model, r.Steps, r.Checkpoints
	t.Parent, t.Checkpoint, t.ToolCall = cmp.Or(t.Parent, r.Parent), cmp.Or(t.Checkpoint, r.Checkpoint), cmp.Or(t.ToolCall, r.ToolCall)
	t.Outcome = cmp.Or(t.Outcome, r.Outcome)
}

// nested orders runs so that each follows its parent, and sets their depths. A run without a known parent is at the
// top, and so is a run that is its own ancestor, which an edited file can claim.
func nested(list []TreeRun) []TreeRun {
	byID := make(map[string]int)
	below := make(map[string][]int)
	for i, r := range slices.Backward(list) {
		byID[r.ID] = i // the first one of an id
	}
	done := make([]bool, len(list))
	var tree []TreeRun
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
		add(i, 0) // runs in a cycle
	}
	return tree
}

// TreeTable returns a table of runs, indented by their depths.
func TreeTable(style cli.Style, runs []TreeRun) render.Table {
	const id, expert, outcome, steps, model, at = 0, 1, 2, 3, 4, 5
	t := render.Table{Head: []string{"RUN", "EXPERT", "OUTCOME", "STEPS", "MODEL", "TIME"}, Right: []int{steps}, Cut: []int{model, expert, id, outcome}, Drop: []int{at, model, steps, expert}}
	for _, r := range runs {
		text := cmp.Or(r.Outcome, "pending")
		if r.Withdrawn {
			text += ", withdrawn"
		}
		t.Rows = append(t.Rows, []string{indented(cli.ID(r.ID), r.Depth), cmp.Or(r.Expert, "-"), text, Tokens(r.Steps), cmp.Or(r.Model, "-"), cli.Minute(r.Time)})
	}
	t.Paint = func(row, column int, cell string) string {
		switch column {
		case id:
			return cell
		case outcome:
			return PaintOutcome(style, runs[row].Outcome, cell)
		}
		return style.Dim(cell)
	}
	return t
}

// maxIndent bounds the indentation. Deeper runs are indented as those at this depth.
const maxIndent = 12

func indented(id string, depth int) string {
	if depth == 0 {
		return id
	}
	return strings.Repeat("  ", min(depth, maxIndent)-1) + "└ " + id
}
