package tavern

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/stores/tavern/internal/flow"
)

// OutcomeOrphaned is the outcome of a flow or a changeset that was stopped because its owner is gone.
const OutcomeOrphaned = "stopped:orphaned"

// Due returns what is due in the flow at a log's time. It applies the rule of the state if the worker's lease has
// ended, or if no worker drives the flow and the state's own flow did not complete. If a worker is lost while the
// state's own flow runs, the flow goes on without it. If it is lost in an end state, the flow is completed.
func (f *Flow) Due(ctx context.Context, now time.Time) (Decision, error) {
	s, err := f.now(ctx)
	if err != nil {
		return Decision{}, err
	}
	child, err := f.child(ctx, s)
	if err != nil {
		return Decision{}, err
	}
	d := flow.Due(s.instance, s.template(), child, now.UnixMilli())
	if d.Do == flow.DueNothing {
		if d.Until == 0 {
			return Decision{}, nil
		}
		return Decision{Next: time.UnixMilli(d.Until)}, nil
	}
	parts, err := f.parts(ctx, s, d, 0)
	return Decision{Parts: parts, Why: d.Why}, err
}

// Recover makes the decision that is due in the flow now, and returns its reason, or "". See Due.
func (f *Flow) Recover(ctx context.Context) (why string, err error) {
	for try := 1; ; try++ {
		now, err := f.st.LogTime(ctx)
		if err != nil {
			return "", err
		}
		d, err := f.Due(ctx, now)
		if err != nil || len(d.Parts) == 0 {
			return "", err
		}
		if _, err = f.st.AppendAll(ctx, d.Parts...); !movedOn(err) || try == maxDecisions || pause(ctx, try) != nil {
			return d.Why, err
		}
	}
}

// template returns the flow's template, or nil if it cannot be read.
func (s *FlowState) template() *flow.Template {
	if s.Workflow == nil {
		return nil
	}
	return s.Workflow.template
}

// parts makes the append of a decision, by the worker with the fence, or by no worker if fence is 0.
func (f *Flow) parts(ctx context.Context, s *FlowState, d flow.Decision, fence events.Offset) ([]log.Part, error) {
	if d.Do == flow.DueEnter {
		parts, err := f.recovered(ctx, s, d, fence)
		if !cannotEnter(err) {
			return parts, err
		}
		d = flow.Decision{Do: flow.DueFail, Why: fmt.Sprintf("%s, and %q cannot be entered: %v", d.Why, d.To, err)}
	}
	var e events.Event
	var err error
	switch d.Do {
	case flow.DueFail:
		e, err = f.finished(s, flow.OutcomeFailed, flowReason(d.Why), fence)
	case flow.DueEnd:
		e, err = f.finished(s, flow.OutcomeCompleted, flowResult(nil), fence)
	case flow.DueRelease:
		e, err = f.freed(s, f.eventID("released", fmt.Sprint(s.Run.Attempt), fmt.Sprint(s.Step)))
	}
	return []log.Part{f.part(s, e)}, err
}

// cannotEnter reports whether a state's own flow can never be started.
func cannotEnter(err error) bool {
	_, invalid := errors.AsType[*events.InvalidError](err)
	_, deep := errors.AsType[*FlowDepthError](err)
	return invalid || deep || isNotThere(err)
}

// recovered makes the append by which the flow enters a state as recovery.
func (f *Flow) recovered(ctx context.Context, s *FlowState, d flow.Decision, fence events.Offset) ([]log.Part, error) {
	p := &events.RunProgressed{Run: f.run(), Kind: flow.ProgressRecovered, Step: s.Step + 1, Note: d.Why, Fence: fence}
	p.State = &events.StateChange{From: s.State, To: d.To}
	e, err := events.New(f.st.Source(), f.sub, p)
	if err != nil {
		return nil, err
	}
	e.ID = f.recoveredID(s.Step+1, d.To, fence)
	part := f.part(s)
	if fence == 0 { // the worker that drove the flow loses it
		free, err := f.freed(s, events.DerivedID(e.ID, "freed"))
		if err != nil {
			return nil, err
		}
		part.Events = append(part.Events, free)
	}
	part.Events = append(part.Events, e)
	return f.entering(ctx, s.Workflow, d.To, s.Step+1, part)
}

func (f *Flow) recoveredID(step int64, to string, fence events.Offset) string {
	return f.eventID(flow.ProgressRecovered, fmt.Sprint(step), to, fence.String())
}

// freed begins the next attempt, without a worker.
func (f *Flow) freed(s *FlowState, id string) (events.Event, error) {
	e, err := events.New(f.st.Source(), f.sub, &events.RunStarted{Run: f.run(), Attempt: s.Run.Attempt + 1})
	e.ID = id
	return e, err
}

// Orphaned decides whether a flow is stopped because its owner is gone. gone is the log's time when that happened, or
// zero; window is how long the flow is left after it. While a worker drives the flow, it is left until the lease ends.
// The owner of a flow that a state started is gone when that flow has ended (FlowState.EndedAt). Orphaned does no I/O.
func (f *Flow) Orphaned(s *FlowState, gone time.Time, window time.Duration, now time.Time) (Decision, error) {
	if s.Over() || s.Run.Owner == "" || gone.IsZero() {
		return Decision{}, nil
	}
	due := gone.Add(window)
	if until := time.UnixMilli(s.Run.LeaseUntil); s.Held && until.After(due) {
		due = until
	}
	if now.Before(due) {
		return Decision{Next: due}, nil
	}
	why := fmt.Sprintf("its owner, %q, is gone", s.Run.Owner)
	e, err := f.finished(s, OutcomeOrphaned, flowReason(why), 0)
	return Decision{Parts: []log.Part{f.part(s, e)}, Why: why}, err
}
