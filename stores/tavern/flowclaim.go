package tavern

import (
	"cmp"
	"context"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/stores/tavern/internal/flow"
)

// DefaultFlowLease is the default lease of a worker on a flow.
const DefaultFlowLease = 2 * time.Minute

// FlowClaim is a worker's claim on a flow. Each of its records carries the claim's fence. It is for one goroutine.
type FlowClaim struct {
	*tally.Claim
	flow *Flow
	at   flowPosition // the flow's position as the worker knows it
}

// Claim lets a worker drive the flow for a lease, 0 for DefaultFlowLease; [tally.Claim.Renew] extends it. Claim first
// makes the decision that is due in the flow, so that the rule of the state applies if an earlier worker was lost. If
// another worker drives the flow, the error is *tally.LeaseError. If the worker claims the flow again, its old claim
// ends.
func (f *Flow) Claim(ctx context.Context, worker string, lease time.Duration) (*FlowClaim, error) {
	if worker == "" || !utf8.ValidString(worker) {
		return nil, &events.InvalidError{Field: "worker", Reason: fmt.Sprintf("%q is not a name of a worker", worker)}
	}
	if lease < 0 {
		return nil, &events.InvalidError{Field: "lease", Reason: fmt.Sprintf("%v is negative", lease)}
	}
	if _, err := f.Recover(ctx); !events.IsStored(err) {
		return nil, err
	}
	lease = cmp.Or(lease, DefaultFlowLease)
	c := &FlowClaim{flow: &Flow{st: f.st, id: f.id, sub: f.sub, known: &knownFlow{instance: flow.New(f.id)}}}
	var until time.Time
	acks, err := c.flow.change(ctx, func(s *FlowState) (_ []log.Part, err error) {
		if err := f.allows(s, 0); err != nil && (!s.Held || s.Run.Worker != worker) {
			return nil, err
		}
		if until, err = f.st.LeaseEnd(ctx, lease); err != nil {
			return nil, err
		}
		c.at = s.position()
		e, err := events.New(f.st.Source(), f.sub, &events.RunStarted{Run: f.run(), Worker: worker, Attempt: s.Run.Attempt, LeaseUntil: until.UnixMilli()})
		return []log.Part{f.part(s, e)}, err
	})
	if !events.IsStored(err) {
		return nil, err
	}
	c.Claim = f.st.Hold(f.sub, tally.Lease{Holder: worker, Until: until}, acks[0].Last, tally.ClaimTerms{In: f.sub, While: lease, Until: c.until, Look: c.look})
	return c, err
}

// until returns the event that extends the lease to a time. For the zero time it returns the event that ends the claim.
// If a record of the flow cannot be read, it returns an error.
func (c *FlowClaim) until(ctx context.Context, at time.Time) (events.Event, error) {
	if _, err := c.look(ctx); err != nil {
		return events.Event{}, err
	}
	p := &events.RunProgressed{Run: c.flow.run(), Kind: flow.ProgressLease, LeaseUntil: new(int64), Fence: c.Fence}
	if !at.IsZero() {
		*p.LeaseUntil = at.UnixMilli()
	}
	return events.New(c.flow.st.Source(), c.flow.sub, p)
}

// look returns the flow's last record if the claim is in effect.
func (c *FlowClaim) look(ctx context.Context) (events.Offset, error) {
	s, err := c.flow.now(ctx)
	if err == nil {
		err = c.flow.allows(s, c.Fence)
	}
	if err != nil {
		return 0, err
	}
	return s.Offset, nil
}

// Move moves the flow to another state, as [Flow.Move] does. After log.ErrUnknown, the same call again is the same
// move. If another move was made before, the error matches log.ErrConflict, and the next call starts from the present
// state.
func (c *FlowClaim) Move(ctx context.Context, to string) error {
	then, err := c.flow.move(ctx, c.at, c.Fence, to)
	return c.moved(ctx, then, err)
}

// moved notes the flow's position.
func (c *FlowClaim) moved(ctx context.Context, then flowPosition, err error) error {
	if events.IsStored(err) {
		c.at = then
	} else if movedOn(err) {
		if s, err := c.flow.now(ctx); err == nil {
			c.at = s.position()
		}
	}
	return err
}

// End ends the flow, as [Flow.End] does.
func (c *FlowClaim) End(ctx context.Context, result events.Raw) error {
	return c.flow.end(ctx, c.Fence, result)
}

// Fail ends the flow as failed, with a reason.
func (c *FlowClaim) Fail(ctx context.Context, reason string) error {
	return c.flow.fail(ctx, c.Fence, reason)
}

// Recover reports that the step failed, with a reason, and applies the rule of its state. If the flow goes on, the
// worker keeps its claim. If the state's own flow has not ended, the error is *FlowChildError; other errors are those
// of Move.
func (c *FlowClaim) Recover(ctx context.Context, reason string) error {
	var then flowPosition
	_, err := c.flow.change(ctx, func(s *FlowState) ([]log.Part, error) {
		if err := c.flow.allows(s, c.Fence); err != nil {
			return nil, err
		}
		if then = s.position(); s.Step == c.at.step+1 && s.instance.Visit().ID == c.flow.recoveredID(s.Step, s.State, c.Fence) {
			return nil, errDone
		}
		if s.Step != c.at.step {
			return nil, c.flow.left(s, c.at)
		}
		if err := c.flow.childOver(ctx, s); err != nil {
			return nil, err
		}
		return c.flow.parts(ctx, s, flow.Recover(s.instance, s.template(), reason), c.Fence)
	})
	if events.IsStored(err) && then == c.at {
		s, lost := c.flow.now(ctx)
		if lost != nil {
			return lost
		}
		then = s.position()
	}
	return c.moved(ctx, then, err)
}
