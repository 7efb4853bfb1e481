package tavern

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/tavern/internal/flow"
)

// FlowState is a flow as of a record.
type FlowState struct {
	ID       string
	Run      projector.Run // owner, parent, template, worker, lease, results
	Input    events.Raw    // of the start
	Workflow *Workflow     // the revision that the flow was started with; nil: it cannot be read
	State    string
	Step     int64         // number of the state in the order of entering, from 1
	Attempt  int           // attempt at the step, from 1
	Entered  events.Offset // when the state was entered
	Child    string        // id of the flow that the state started, or ""
	Held     bool          // Run.Worker holds the flow until Run.LeaseUntil
	Result   events.Raw    // of the end
	EndedAt  time.Time     // when the end was recorded; zero: the flow has not ended
	Offset   events.Offset // of the flow's last record
	Damaged  events.Offset // the last record that cannot be read, or 0

	instance *flow.Instance
}

// Over reports whether the flow has ended.
func (s *FlowState) Over() bool { return s.instance.Over() }

// Outcome returns completed, failed or stopped:<reason>, or "" if the flow has not ended.
func (s *FlowState) Outcome() string { return s.instance.Outcome() }

// Allowed returns the states that the flow can move to, or nil if the template cannot be read.
func (s *FlowState) Allowed() []string {
	if st := s.state(); st != nil && !s.Over() {
		return slices.Clone(st.To)
	}
	return nil
}

// state returns the present state of the template, or nil if the template cannot be read.
func (s *FlowState) state() *flow.State {
	if s.Workflow == nil {
		return nil
	}
	return s.Workflow.template.State(s.State)
}

// Statuses of a step.
const (
	StepDone    = flow.StepDone    // the flow was there and went on
	StepCurrent = flow.StepCurrent // the flow is there
	StepOpen    = flow.StepOpen    // the flow can still get there
	StepLost    = flow.StepLost    // recovery took the flow away from there, and no move leads back
	StepSkipped = flow.StepSkipped // the flow was never there, and no move leads there any more
)

// FlowStep is a state of a flow that is not an end.
type FlowStep struct {
	State  string
	Status string // StepDone and so on
	Visits int    // how often the flow was there
}

// Steps returns the steps of the flow in the template's order, or nil if the template cannot be read. A done step stays
// done, even if moves lead back to it.
func (s *FlowState) Steps() []FlowStep {
	if s.Workflow == nil {
		return nil
	}
	var list []FlowStep
	for _, step := range s.instance.Steps(s.Workflow.template) {
		list = append(list, FlowStep(step))
	}
	return list
}

// FlowVisit is one visit of a flow to a state.
type FlowVisit struct {
	State    string
	Step     int64         // in the order of entering, from 1
	At       events.Offset // the record with which it began
	Recorded time.Time     // when that was recorded
	Lost     bool          // it ended by recovery, not by a move
}

// Visits returns the flow's visits, oldest first. The last one is the present state.
func (s *FlowState) Visits() []FlowVisit {
	list := make([]FlowVisit, len(s.instance.Visits))
	for i, v := range s.instance.Visits {
		list[i] = FlowVisit{v.State, v.Step, v.At, v.Recorded, v.Lost}
	}
	return list
}

// Incomplete returns the steps that are current or still ahead. A flow that ended early still has them.
func (s *FlowState) Incomplete() []FlowStep {
	return slices.DeleteFunc(s.Steps(), func(step FlowStep) bool { return step.Status != StepCurrent && step.Status != StepOpen })
}

// State returns the flow as it is now. If the flow was not started, the error is tally.ErrNotFound. If some of its
// records cannot be read, State returns the flow with a *projector.HoleError. It reads all records of the flow.
func (f *Flow) State(ctx context.Context) (*FlowState, error) {
	s, err := f.now(ctx)
	switch {
	case err != nil:
	case s.Damaged > 0:
		err = projector.HoleOf(f.sub, []events.Offset{s.Damaged})
	case s.Workflow == nil:
		err = f.template(ctx, s.Run.Template)
	}
	return s, err
}

// template returns a *projector.HoleError if the flow's template cannot be read because of damage.
func (f *Flow) template(ctx context.Context, ref events.DocRef) error {
	sub, at, err := ref.Parse(f.st.Namespace())
	if err != nil || at == 0 {
		return nil // pinned handles it
	}
	_, err = f.st.Log.Record(ctx, at)
	if _, damaged := errors.AsType[*events.DamageError](err); !damaged {
		return nil
	}
	return projector.HoleOf(sub, []events.Offset{at})
}

// now is State for decisions, which check themselves whether lost records matter.
func (f *Flow) now(ctx context.Context) (*FlowState, error) {
	i, err := f.instance(ctx)
	if err != nil {
		return nil, err
	}
	s := &FlowState{ID: f.id, Run: i.Run, Input: i.Input, State: i.Run.State, Step: i.Step, Attempt: i.Attempt, Entered: i.Visit().At, Held: i.Held && !i.Over(),
		Result: i.Result, EndedAt: i.EndedAt, Offset: i.Last, Damaged: i.Damaged, instance: i}
	if s.Workflow, err = f.workflow(ctx, i.Run.Template); err != nil {
		return nil, err
	}
	if st := s.state(); st != nil && st.Flow != "" {
		s.Child = childID(f.id, i.Step)
	}
	return s, nil
}

// instance folds the flow's records that are new.
func (f *Flow) instance(ctx context.Context) (*flow.Instance, error) {
	if err := f.sub.Validate(); err != nil {
		return nil, err
	}
	i := flow.New(f.id)
	if f.known != nil {
		i = f.known.instance
	}
	for rec, err := range f.st.Log.Read(ctx, events.Range{Subject: f.sub, After: i.Last}) {
		if damage, ok := errors.AsType[*events.DamageError](err); ok {
			i.Miss(damage.Offset)
			continue
		}
		if err == nil {
			rec, err = projector.Resolve(ctx, f.st.Log, rec, f.st.MaxValue())
		}
		if err != nil {
			return nil, err
		}
		i.Apply(projector.Decode(rec))
	}
	if i.Run.Created == 0 && i.Damaged == 0 {
		return nil, fmt.Errorf("%s: %w", f.sub.Name(), tally.ErrNotFound)
	}
	return i, nil
}

// workflow returns the flow's template, and reads it only once.
func (f *Flow) workflow(ctx context.Context, ref events.DocRef) (*Workflow, error) {
	if f.known == nil || f.known.workflow == nil {
		w, err := f.pinned(ctx, ref)
		if f.known == nil || err != nil {
			return w, err
		}
		f.known.workflow = w
	}
	return f.known.workflow, nil
}

// pinned returns the template's revision that the flow was started with, or nil if it is missing or not a workflow.
func (f *Flow) pinned(ctx context.Context, ref events.DocRef) (*Workflow, error) {
	sub, at, err := ref.Parse(f.st.Namespace())
	if err != nil || at == 0 {
		return nil, nil // another program's event, or the record is damaged
	}
	w, err := WorkflowsOf(f.st).ReadAt(ctx, sub.ID, at)
	_, invalid := errors.AsType[*events.InvalidError](err)
	_, damaged := errors.AsType[*events.DamageError](err)
	if invalid || damaged || isNotThere(err) {
		return nil, nil
	}
	return w, err
}
