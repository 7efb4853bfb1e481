package catalog

import (
	"context"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/projector"
)

// runWorkflow is the kind of a flow's run. The run has the id of the flow.
const runWorkflow = "workflow"

// FlowListed is a row of the list of flows.
type FlowListed struct {
	Namespace string
	ID        string
	Run       projector.Run // without results and fenced events
	Held      bool          // by Run.Worker, until Run.LeaseUntil
	Outcome   string        // "": unfinished
	EndedAt   int64         // when the end was recorded, in Unix milliseconds; 0: unfinished
	LastAt    events.Timestamp
	Head      events.Offset

	data []byte
}

const flowColumns = "namespace, id, held, outcome, ended, last_at, head_offset, data"

func (l *FlowListed) columns() []any {
	return []any{&l.Namespace, &l.ID, &l.Held, &l.Outcome, &l.EndedAt, &l.LastAt, offset(&l.Head), &l.data}
}

// restore decodes the run of a row.
func (l *FlowListed) restore() error {
	if err := rawjson.Unmarshal(l.data, &l.Run); err != nil {
		return err
	}
	l.Run.Kind, l.Run.ID = runWorkflow, l.ID
	return nil
}

// foldFlow folds a record of a flow.
func (w *Work) foldFlow(ctx context.Context, id string, f projector.Fact) error {
	l := FlowListed{Namespace: f.Subject.Namespace, ID: id, Run: projector.Run{Kind: runWorkflow, ID: id}}
	found, err := w.find(ctx, "SELECT "+flowColumns+" FROM flows{set} WHERE namespace=? AND id=?", []any{l.Namespace, id}, l.columns())
	if err == nil && found {
		err = l.restore()
	}
	if err != nil {
		return err
	}
	was := l.EndedAt
	moved := l.apply(f)
	if err := w.storeFlow(ctx, &l); err != nil {
		return err
	}
	open, owner := l.Run.Created != 0 && l.EndedAt == 0, ""
	if open {
		owner = l.Run.Owner
	}
	if err := w.belong(ctx, projector.DueOrphan, f.Subject, owner); err != nil {
		return err
	}
	if err := w.due(ctx, dueKey{what: projector.DueFlow, subject: f.Subject}, l.Run.LeaseUntil, open && l.Held); err != nil {
		return err
	}
	if l.EndedAt != 0 || moved {
		if err := w.run(ctx, "DELETE FROM due{set} WHERE what=? AND namespace=? AND kind=? AND id=? AND about<>0", projector.DueFlow, l.Namespace, f.Subject.Kind, f.Subject.ID); err != nil {
			return err
		}
	}
	if was == l.EndedAt {
		return nil
	}
	if err := w.missing(ctx, &l); err != nil {
		return err
	}
	return w.leave(ctx, l.Namespace, f.Subject.ID, l.EndedAt)
}

// missing handles a flow that ended without completing: it makes its parent flow due, which may wait for it.
func (w *Work) missing(ctx context.Context, l *FlowListed) error {
	if l.Run.Parent == nil || l.Outcome == "completed" {
		return nil
	}
	id, ok := strings.CutPrefix(l.Run.Parent.Session, flowPrefix)
	if !ok {
		return nil
	}
	var ended int64
	open, err := w.find(ctx, "SELECT ended FROM flows{set} WHERE namespace=? AND id=? AND ended=0", []any{l.Namespace, id}, []any{&ended})
	if err != nil || !open {
		return err
	}
	return w.due(ctx, dueKey{what: projector.DueFlow, subject: events.Session(l.Namespace, l.Run.Parent.Session), about: l.Head}, l.EndedAt, true)
}

// storeFlow stores a row with the part of the run that the next record depends on.
func (w *Work) storeFlow(ctx context.Context, l *FlowListed) error {
	r := l.Run
	r.ID, r.Results, r.Fenced = "", nil, nil // an id need not be valid text, unlike JSON
	data, err := rawjson.Marshal(r)
	if err != nil {
		return err
	}
	l.data = data
	return w.put(ctx, "flows", valuesOf(l.columns())...)
}

// apply folds a record, and reports whether the flow entered a state. The outcome of the flow that the previous state
// started is then irrelevant. Records of other runs, and of a worker whose claim was replaced, have no effect.
func (l *FlowListed) apply(f projector.Fact) (moved bool) {
	l.Head, l.LastAt = f.Offset, max(l.LastAt, f.Happened())
	ref := projector.RunOf(f.Payload)
	if f.Invalid != nil || ref == nil || *ref != l.Run.Ref() {
		return false
	}
	if l.Run.At == 0 {
		l.Run.At = f.Offset
	}
	if l.Run.Apply(f); len(l.Run.Fenced) > 0 {
		return false
	}
	switch p := f.Payload.(type) {
	case *events.RunStarted:
		l.Held = p.Worker != ""
	case *events.RunProgressed:
		if p.LeaseUntil != nil && *p.LeaseUntil == 0 {
			l.Held = false
		}
		return p.State != nil
	case *events.RunFinished:
		l.Outcome = p.Outcome
		if l.EndedAt == 0 {
			l.EndedAt = millis(f.Recorded)
		}
	}
	return false
}
