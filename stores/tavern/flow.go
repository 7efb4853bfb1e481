package tavern

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/stores/tavern/internal/flow"
)

// Flow is a handle on a flow, which is a running workflow: the session flow/<id> with the run workflow/<id>. It is
// cheap, does no I/O until a method is called, keeps no state, and is safe for concurrent use.
//
// run.created has the owner, the parent, the input and the revision of the template. run.started records each attempt
// and the worker that drives the flow. run.progressed records each entered state, with the number of the step, and each
// renewal of a lease. run.finished records the end. All but the first are appended on the condition that the flow has
// not changed.
//
// A flow moves by hand, by Move, or by a worker that has claimed it: then only the worker can move it until the claim
// ends. A stale call is refused, and nothing is written.
type Flow struct {
	st    *tally.Store
	id    string
	sub   events.Subject
	known *knownFlow // of a worker's own handle; nil: each call reads the whole flow
}

// knownFlow caches the flow of a worker that has a claim, so that a call reads only new records.
type knownFlow struct {
	instance *flow.Instance
	workflow *Workflow // template of the flow; nil: not read yet
}

// FlowOf returns a handle on a flow, whether it exists or not.
func FlowOf(st *tally.Store, id string) *Flow {
	return &Flow{st: st, id: id, sub: events.Session(st.Namespace(), flowSession(id))}
}

// flowSession returns the id of a flow's session.
func flowSession(id string) string { return events.KindFlow + "/" + id }

// ID returns the flow's id.
func (f *Flow) ID() string { return f.id }

// Subject names the flow's session in the log.
func (f *Flow) Subject() events.Subject { return f.sub }

func (f *Flow) run() events.RunRef { return events.RunRef{Kind: flow.RunKind, ID: f.id} }

// errDone reports that the change is stored already, because the answer to an earlier attempt was lost.
var errDone = errors.New("done already")

// change appends the result of decide on the present flow, and calls decide again if the flow has changed meanwhile.
func (f *Flow) change(ctx context.Context, decide func(*FlowState) ([]log.Part, error)) (acks []log.Ack, err error) {
	for try := 1; ; try++ {
		s, err := f.now(ctx)
		if err != nil {
			return nil, err
		}
		parts, err := decide(s)
		if err == errDone {
			return nil, nil
		}
		if err != nil || len(parts) == 0 {
			return nil, err
		}
		acks, err = f.st.AppendAll(ctx, parts...)
		if !movedOn(err) || try == maxDecisions || pause(ctx, try) != nil {
			return acks, err
		}
	}
}

// movedOn reports whether an error means that the flow has changed since it was read, or that another process made the
// same change.
func movedOn(err error) bool {
	_, conflict := errors.AsType[*log.ConflictError](err)
	invalid, ok := errors.AsType[*events.InvalidError](err)
	return conflict || ok && invalid.Field == "id"
}

// part makes an append that is refused if the flow has records after s.
func (f *Flow) part(s *FlowState, evs ...events.Event) log.Part {
	return log.Part{Subject: f.sub, Expect: log.At(s.Offset), Events: evs}
}

// event makes an event of the flow whose id follows from its contents.
func (f *Flow) event(p events.Payload, what ...string) (events.Event, error) {
	e, err := events.New(f.st.Source(), f.sub, p)
	e.ID = f.eventID(what...)
	return e, err
}

func (f *Flow) eventID(what ...string) string {
	return events.DerivedID(append([]string{"flow", f.id}, what...)...)
}

// Move moves the flow to another state by hand. If the present state does not lead there, the error is
// *TransitionError; if a worker drives the flow, *tally.LeaseError; if the state's own flow has not ended,
// *FlowChildError; if this flow has ended, *FlowOverError.
func (f *Flow) Move(ctx context.Context, to string) error {
	for try := 1; ; try++ {
		s, err := f.now(ctx)
		if err != nil {
			return err
		}
		if err = f.MoveFrom(ctx, s, to); !movedOn(err) || try == maxDecisions || pause(ctx, try) != nil {
			return err
		}
	}
}

// MoveFrom is Move for a caller that has read the flow before. If the flow has left that step, the error matches
// log.ErrConflict. After log.ErrUnknown, the same call again is the same move.
func (f *Flow) MoveFrom(ctx context.Context, s *FlowState, to string) error {
	_, err := f.move(ctx, s.position(), 0, to)
	return err
}

// flowPosition is a step of a flow.
type flowPosition struct {
	step    int64
	entered events.Offset
}

func (s *FlowState) position() flowPosition { return flowPosition{s.Step, s.Entered} }

// left returns the error for a flow that has left a position.
func (f *Flow) left(s *FlowState, at flowPosition) error {
	return &log.ConflictError{Subject: f.sub, Want: at.entered, Have: s.Entered}
}

// move moves the flow from a step to a state, and returns the new position. fence is the worker's claim, or 0 for a
// move by hand.
func (f *Flow) move(ctx context.Context, at flowPosition, fence events.Offset, to string) (then flowPosition, err error) {
	next := at.step + 1
	what := []string{flow.ProgressMoved, fmt.Sprint(next), to, fence.String()}
	acks, err := f.change(ctx, func(s *FlowState) ([]log.Part, error) {
		if s.instance.Visit().ID == f.eventID(what...) {
			then = s.position()
			return nil, errDone
		}
		if err := f.allows(s, fence); err != nil {
			return nil, err
		}
		if s.Step != at.step {
			return nil, f.left(s, at)
		}
		if err := f.leads(ctx, s, to); err != nil {
			return nil, err
		}
		p := &events.RunProgressed{Run: f.run(), Kind: flow.ProgressMoved, Step: next, State: &events.StateChange{From: s.State, To: to}, Fence: fence}
		e, err := f.event(p, what...)
		if err != nil {
			return nil, err
		}
		return f.entering(ctx, s.Workflow, to, next, f.part(s, e))
	})
	if len(acks) > 0 {
		then = flowPosition{next, acks[0].Last}
	}
	return then, err
}

// allows returns an error if the holder of a claim, or with fence 0 a caller without one, may not change the flow.
func (f *Flow) allows(s *FlowState, fence events.Offset) error {
	switch {
	case fence != 0 && (!s.Held || s.Run.Claim != fence) && !s.Over():
		e := &tally.FencedError{Subject: f.sub, Fence: fence}
		if s.Held {
			e.Have, e.Holder = s.Run.Claim, s.Run.Worker
		}
		return e
	case s.Over():
		return &FlowOverError{Flow: f.id, Outcome: s.Outcome()}
	case fence == 0 && s.Held:
		return &tally.LeaseError{Subject: f.sub, Lease: tally.Lease{Holder: s.Run.Worker, Until: time.UnixMilli(s.Run.LeaseUntil)}}
	case s.Damaged > s.Entered:
		return fmt.Errorf("flow %q: %w", f.id, &events.DamageError{Offset: s.Damaged})
	}
	return nil
}

// leads returns an error if the flow cannot move to a state now.
func (f *Flow) leads(ctx context.Context, s *FlowState, to string) error {
	st := s.state()
	if st == nil || !st.Leads(to) {
		return &TransitionError{What: "flow " + f.id, From: s.State, To: to, Allowed: s.Allowed()}
	}
	return f.childOver(ctx, s)
}

// childOver returns an error if the state's own flow has not ended.
func (f *Flow) childOver(ctx context.Context, s *FlowState) error {
	child, err := f.child(ctx, s)
	if err == nil && child != nil && !child.Over {
		err = &FlowChildError{Flow: f.id, State: s.State, Child: child.ID}
	}
	return err
}

// child returns the state of the flow that the present state started, or nil.
func (f *Flow) child(ctx context.Context, s *FlowState) (*flow.Child, error) {
	if s.Child == "" {
		return nil, nil
	}
	i, err := FlowOf(f.st, s.Child).instance(ctx)
	if isNotThere(err) {
		return nil, nil // another program's event: tally starts the child in the same append
	}
	if err != nil {
		return nil, err
	}
	return &flow.Child{ID: s.Child, Over: i.Over(), Outcome: i.Outcome()}, nil
}

// End completes the flow, with a result or nil. If the flow is not in an end of its template, the error is
// *TransitionError; other errors are those of Move.
func (f *Flow) End(ctx context.Context, result events.Raw) error { return f.end(ctx, 0, result) }

func (f *Flow) end(ctx context.Context, fence events.Offset, result events.Raw) error {
	return f.finish(ctx, flow.OutcomeCompleted, flowResult(result), fence, func(s *FlowState) error {
		if err := f.allows(s, fence); err != nil {
			return err
		}
		if st := s.state(); st == nil || !st.End {
			return &TransitionError{What: "flow " + f.id, From: s.State, To: "its end", Allowed: s.Allowed()}
		}
		return nil
	})
}

// Fail ends the flow as failed, with a reason, whatever its state and worker. A flow that its state started continues,
// without an owner. If the flow has ended, the error is *FlowOverError.
func (f *Flow) Fail(ctx context.Context, reason string) error { return f.fail(ctx, 0, reason) }

func (f *Flow) fail(ctx context.Context, fence events.Offset, reason string) error {
	return f.finish(ctx, flow.OutcomeFailed, flowReason(reason), fence, func(s *FlowState) error {
		if s.Over() || fence != 0 {
			return f.allows(s, fence)
		}
		return nil
	})
}

// flowReason returns the result of a flow that did not complete.
func flowReason(reason string) events.Raw {
	raw, _ := json.Marshal(map[string]string{"reason": strings.ToValidUTF8(reason, "\uFFFD")}) // encoding text cannot fail
	return raw
}

func flowResult(raw events.Raw) events.Raw {
	if len(raw) == 0 {
		return events.Raw("null")
	}
	return raw
}

// finish ends the flow.
func (f *Flow) finish(ctx context.Context, outcome string, result events.Raw, fence events.Offset, check func(*FlowState) error) error {
	_, err := f.change(ctx, func(s *FlowState) ([]log.Part, error) {
		e, err := f.finished(s, outcome, result, fence)
		if err != nil {
			return nil, err
		}
		if s.instance.Ended == e.ID {
			return nil, errDone
		}
		if err := check(s); err != nil {
			return nil, err
		}
		return []log.Part{f.part(s, e)}, nil
	})
	return err
}

// finished returns the event that ends the flow.
func (f *Flow) finished(s *FlowState, outcome string, result events.Raw, fence events.Offset) (events.Event, error) {
	p := &events.RunFinished{Run: f.run(), Outcome: outcome, Result: result, Fence: fence}
	return f.event(p, "finished", outcome, string(result), fence.String())
}

// startable refuses ids with which no flow can start.
func (f *Flow) startable() error {
	switch {
	case !utf8.ValidString(f.id):
		return &events.InvalidError{Field: "id", Reason: fmt.Sprintf("%q is not UTF-8", f.id)}
	case f.id == "" || strings.Contains(f.id, childMark):
		return &events.InvalidError{Field: "id", Reason: fmt.Sprintf("%q: an id is not empty, and %q stands in those of flows that a state starts", f.id, childMark)}
	}
	return f.sub.Validate()
}
