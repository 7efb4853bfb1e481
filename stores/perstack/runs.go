package perstack

import (
	"cmp"
	"context"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/perstack/internal/shape"
)

// Run is a run of a job in a list.
type Run struct {
	ID          string
	ExpertKey   string // "": unknown
	Model       string // of the setting, or ""
	Outcome     string // completed, failed, stopped:<reason>; "": it has not ended, or its process is gone
	Steps       int64  // the largest step of a checkpoint
	Checkpoints int
	First       events.Offset // the first record about it
	HasSetting  bool
	TouchedAt   events.Timestamp

	Parent     string // run that delegated to it, or ""
	Checkpoint string // of the parent, from which it delegated
	ToolCall   string
}

// Runs lists the runs of the job in the order in which they appeared: those with a setting or an event, and those that
// only a checkpoint names.
func (h *Handle) Runs(ctx context.Context) ([]Run, error) {
	o, err := h.head(ctx)
	if err != nil {
		return nil, err
	}
	found, first := runsOf(o.Ledger())
	runs := make([]Run, len(found))
	for i, r := range found {
		if err := h.describe(ctx, r, o.Ledger().Run(shape.RunRef(r.ID)), first[r.ID]); err != nil {
			return nil, err
		}
		runs[i] = *r
	}
	return runs, nil
}

// runsOf returns the runs in a ledger, and the first checkpoint of each.
func runsOf(l *projector.Ledger) ([]*Run, map[string]*projector.Checkpoint) {
	var list []*Run
	byID, first := make(map[string]*Run), make(map[string]*projector.Checkpoint)
	run := func(id string, at events.Offset) *Run {
		r := byID[id]
		if r == nil {
			r = &Run{ID: id, First: at}
			byID[id] = r
			list = append(list, r)
		}
		r.First = min(r.First, at)
		return r
	}
	for _, had := range l.Runs {
		if had.Kind == shape.RunKind {
			run(had.ID, had.At).takes(had)
		}
	}
	for _, c := range l.Checkpoints {
		if c.Kind != events.CheckpointStep || c.Run == nil {
			continue
		}
		r := run(c.Run.ID, c.Made)
		r.Steps, r.Checkpoints = max(r.Steps, c.Step), r.Checkpoints+1
		if first[r.ID] == nil {
			first[r.ID] = c
		}
	}
	slices.SortStableFunc(list, func(a, b *Run) int { return cmp.Compare(a.First, b.First) })
	return list, first
}

// takes copies a run's fields from the ledger.
func (r *Run) takes(had *projector.Run) {
	if len(had.Models) > 0 {
		r.Model = had.Models[0]
	}
	if last := had.Last(); last != nil {
		r.Outcome = last.Outcome
	}
	r.HasSetting, r.TouchedAt = had.Setting != 0, cmp.Or(had.TouchedAt, had.CreatedAt)
	if p := had.Parent; p != nil {
		r.Parent, r.Checkpoint, r.ToolCall = p.Run, p.Checkpoint, p.ToolCall
	}
}

// describe reads a run's expert and parent, from its first checkpoint or else from the event that started it.
func (h *Handle) describe(ctx context.Context, r *Run, had *projector.Run, first *projector.Checkpoint) error {
	var at []events.Offset
	if first != nil {
		at = append(at, first.Made)
	}
	if had != nil && had.Claim != 0 {
		at = append(at, had.Claim)
	}
	if had != nil && len(at) == 0 {
		at = append(at, had.At)
	}
	for _, at := range at {
		p, err := h.payload(ctx, at)
		if err != nil {
			return err
		}
		raw := rawIn(p)
		m, err := rawjson.Object(raw)
		if err != nil {
			continue
		}
		r.ExpertKey = cmp.Or(r.ExpertKey, m.Object("expert").Text("key"), m.Text("expertKey"))
		if by, ok := shape.DelegatedBy(raw); ok && r.Parent == "" {
			r.Parent, r.Checkpoint, r.ToolCall = by.Run, by.Checkpoint, by.ToolCall
		}
	}
	return nil
}

// rawIn returns the original's document in a record, without its lists.
func rawIn(p events.Payload) events.Raw {
	switch p := p.(type) {
	case *events.CheckpointSaved:
		return p.Raw
	case *events.RunCreated:
		return p.Setting
	}
	_, raw, _ := shape.RawOf(p)
	return raw
}

// Node is a run with the runs that it delegated to.
type Node struct {
	Run
	Children []*Node
}

// Tree returns the runs without a parent in the job, each with those below it.
func (h *Handle) Tree(ctx context.Context) ([]*Node, error) {
	runs, err := h.Runs(ctx)
	if err != nil {
		return nil, err
	}
	nodes := make(map[string]*Node, len(runs))
	for _, r := range runs {
		nodes[r.ID] = &Node{Run: r}
	}
	var roots []*Node
	for _, r := range runs {
		n, parent := nodes[r.ID], nodes[r.Parent]
		if parent == nil || circles(nodes, n) {
			roots = append(roots, n)
			continue
		}
		parent.Children = append(parent.Children, n)
	}
	return roots, nil
}

// circles reports whether a run is its own ancestor, which an edited file may claim.
func circles(nodes map[string]*Node, n *Node) bool {
	at := n
	for range nodes {
		if at = nodes[at.Parent]; at == nil {
			return false
		}
		if at == n {
			return true
		}
	}
	return true
}
