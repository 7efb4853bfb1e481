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

// FlowState is a flow as it is at a record.
type FlowState struct {
	ID       string
	Run      projector.Run // owner, parent, template, worker, lease, results
	Input    events.Raw    // that it was started with
	Workflow *Workflow     // the revision that it was started with; nil: it cannot be read any more
	State    string
	Step     int64         // number of the state in the order in which they were entered, from 1
	Attempt  int           // which try of the step this is, from 1
	Entered  events.Offset // when the state was entered
	Child    string        // id of the flow that the state started; "": none
	Held     bool          // by Run.Worker, until Run.LeaseUntil
	Result   events.Raw    // of its end
	EndedAt  time.Time     // when that was recorded; zero: it is not over
	Offset   events.Offset // of the flow's last record
	Damaged  events.Offset // the last record that cannot be read; 0: there is none

	instance *flow.Instance
}

// Over reports whether the flow is over.
func (s *FlowState) Over() bool { return s.instance.Over() }

// Outcome is completed, failed or stopped:<reason>; "" of a flow that is not over.
func (s *FlowState) Outcome() string { return s.instance.Outcome() }

// Allowed returns the states that the flow can be moved to, none if that is not known.
func (s *FlowState) Allowed() []string {
	if st := s.state(); st != nil && !s.Over() {
		return slices.Clone(st.To)
	}
	return nil
}

// state is where the flow is, nil if its template cannot be read.
func (s *FlowState) state() *flow.State {
	if s.Workflow == nil {
		return nil
	}
	return s.Workflow.template.State(s.State)
}

// What has become of a step.
const (
	StepDone    = flow.StepDone    // the flow was there and went on
	StepCurrent = flow.StepCurrent // the flow is there
	StepOpen    = flow.StepOpen    // the flow can still get there
	StepLost    = flow.StepLost    // the flow was there, recovery took it away, and no move leads back
	StepSkipped = flow.StepSkipped // the flow was never there, and no move leads there any more
)

// FlowStep is a state, which is no end, as it stands in a flow.
type FlowStep struct {
	State  string
	Status string // StepDone and so on
	Visits int    // how often the flow was there
}

// Steps returns the steps of the flow as they stand, in the template's order; none if the
// template cannot be read. What was done is done, whether moves lead back to it or not.
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

// FlowVisit is one time that a flow was in a state.
type FlowVisit struct {
	State    string
	Step     int64         // in the order in which states were entered, from 1
	At       events.Offset // where it began
	Recorded time.Time     // when that was recorded
	Lost     bool          // it ended by recovery, and not by a move
}

// Visits returns the states in which the flow was, the last one being where it is, oldest first.
func (s *FlowState) Visits() []FlowVisit {
	list := make([]FlowVisit, len(s.instance.Visits))
	for i, v := range s.instance.Visits {
		list[i] = FlowVisit{v.State, v.Step, v.At, v.Recorded, v.Lost}
	}
	return list
}

// Incomplete returns the steps that are under way or still ahead. A flow that ended before its
// time still has them.
func (s *FlowState) Incomplete() []FlowStep {
	return slices.DeleteFunc(s.Steps(), func(step FlowStep) bool { return step.Status != StepCurrent && step.Status != StepOpen })
}

// State returns the flow as it is now. One that was not started is tally.ErrNotFound. One of which
// records cannot be read comes with a *projector.HoleError. It reads all records of the flow.
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

// template returns a *projector.HoleError if the revision cannot be read that a flow was started with.
func (f *Flow) template(ctx context.Context, ref events.DocRef) error {
	sub, at, err := ref.Parse(f.st.Namespace())
	if err != nil || at == 0 {
		return nil // as pinned says
	}
	_, err = f.st.Log.Record(ctx, at)
	if _, damaged := errors.AsType[*events.DamageError](err); !damaged {
		return nil
	}
	return projector.HoleOf(sub, []events.Offset{at})
}

// now is State for a decision, which asks itself whether what is lost matters to it.
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

// instance folds the flow's records, those that are not known yet.
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

// workflow is pinned, but for what is known already.
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

// pinned returns the revision of a template that a flow was started with, nil if it is there no
// more or is no workflow.
func (f *Flow) pinned(ctx context.Context, ref events.DocRef) (*Workflow, error) {
	sub, at, err := ref.Parse(f.st.Namespace())
	if err != nil || at == 0 {
		return nil, nil // somebody else's event, or the record that says it is damaged
	}
	w, err := WorkflowsOf(f.st).ReadAt(ctx, sub.ID, at)
	_, invalid := errors.AsType[*events.InvalidError](err)
	_, damaged := errors.AsType[*events.DamageError](err)
	if invalid || damaged || isNotThere(err) {
		return nil, nil
	}
	return w, err
}
