package tavern

import (
	"cmp"
	"context"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/stores/tavern/internal/flow"
)

// DefaultFlowLease is how long a worker drives a flow without renewing its claim.
const DefaultFlowLease = 2 * time.Minute

// FlowClaim is a worker's claim on a flow: the offset of its run.started is the fence of all
// that the worker says. It is for one goroutine. A worker that was lost, whose claim is not the
// newest any more, is refused with *FlowFencedError.
type FlowClaim struct {
	Worker string
	Fence  events.Offset
	Until  time.Time // by the log's time; Renew moves it

	flow  *Flow
	lease time.Duration
	at    place // where the worker knows the flow to be
}

// Claim has a worker drive the flow for a while, 0 for DefaultFlowLease, and longer by
// [FlowClaim.Renew]. What is due in the flow is done first, so that the rule of its state is
// applied if an earlier worker was lost. While another one drives it the error is
// *FlowHeldError. A worker that claims the flow again has a new claim, and the old one is over.
func (f *Flow) Claim(ctx context.Context, worker string, lease time.Duration) (*FlowClaim, error) {
	if worker == "" || !utf8.ValidString(worker) {
		return nil, &events.InvalidError{Field: "worker", Reason: fmt.Sprintf("%q names nobody", worker)}
	}
	if lease < 0 {
		return nil, &events.InvalidError{Field: "lease", Reason: fmt.Sprintf("%v is no time at all", lease)}
	}
	if _, err := f.Recover(ctx); err != nil {
		return nil, err
	}
	own := &Flow{st: f.st, id: f.id, sub: f.sub, known: &knownFlow{instance: flow.New(f.id)}}
	c := &FlowClaim{Worker: worker, flow: own, lease: cmp.Or(lease, DefaultFlowLease)}
	acks, err := own.change(ctx, func(s *FlowState) (_ []log.Part, err error) {
		if err := f.allows(s, 0); err != nil && (!s.Held || s.Run.Worker != worker) {
			return nil, err
		}
		if c.Until, err = c.leaseEnd(ctx); err != nil {
			return nil, err
		}
		c.at = s.place()
		e, err := events.New(f.st.Source(), f.sub, &events.RunStarted{Run: f.run(), Worker: worker, Attempt: s.Run.Attempt, LeaseUntil: c.Until.UnixMilli()})
		return []log.Part{f.part(s, e)}, err
	})
	if err != nil {
		return nil, err
	}
	c.Fence = acks[0].Last
	return c, nil
}

// leaseEnd is when a lease is over that begins now.
func (c *FlowClaim) leaseEnd(ctx context.Context) (time.Time, error) {
	now, err := c.flow.st.LeaseTime(ctx)
	return now.Add(c.lease).Truncate(time.Millisecond), err
}

// say appends a progress of the flow by the worker.
func (c *FlowClaim) say(ctx context.Context, p func(*FlowState) ([]log.Part, error)) error {
	_, err := c.flow.change(ctx, func(s *FlowState) ([]log.Part, error) {
		if err := c.flow.allows(s, c.Fence); err != nil {
			return nil, err
		}
		return p(s)
	})
	return err
}

// Renew has the lease begin anew. Half of the lease is a good time to do so. With an error
// Until stays: whether the lease is longer is not known.
func (c *FlowClaim) Renew(ctx context.Context) error {
	var until time.Time
	err := c.say(ctx, func(s *FlowState) (_ []log.Part, err error) {
		if until, err = c.leaseEnd(ctx); err != nil {
			return nil, err
		}
		return c.leaseUntil(s, until.UnixMilli())
	})
	if err == nil {
		c.Until = until
	}
	return err
}

// Release gives the flow back as it is: somebody else can claim it.
func (c *FlowClaim) Release(ctx context.Context) error {
	return c.say(ctx, func(s *FlowState) ([]log.Part, error) { return c.leaseUntil(s, 0) })
}

func (c *FlowClaim) leaseUntil(s *FlowState, until int64) ([]log.Part, error) {
	e, err := events.New(c.flow.st.Source(), c.flow.sub, &events.RunProgressed{Run: c.flow.run(), Kind: flow.ProgressLease, LeaseUntil: &until, Fence: c.Fence})
	return []log.Part{c.flow.part(s, e)}, err
}

// Move moves the flow to another state, as [Flow.Move] does. The same move made again, after
// log.ErrUnknown, is one. If another one was in fact made before, the error matches
// log.ErrConflict, and the next call goes from where the flow is.
func (c *FlowClaim) Move(ctx context.Context, to string) error {
	then, err := c.flow.move(ctx, c.at, c.Fence, to)
	return c.moved(ctx, then, err)
}

// moved notes where the flow is.
func (c *FlowClaim) moved(ctx context.Context, then place, err error) error {
	if err == nil {
		c.at = then
	}
	if movedOn(err) {
		if s, err := c.flow.now(ctx); err == nil {
			c.at = s.place()
		}
	}
	return err
}

// End ends the flow, as [Flow.End] does.
func (c *FlowClaim) End(ctx context.Context, result events.Raw) error {
	return c.flow.end(ctx, c.Fence, result)
}

// Fail ends the flow as failed, for a reason.
func (c *FlowClaim) Fail(ctx context.Context, reason string) error {
	return c.flow.fail(ctx, c.Fence, reason)
}

// Recover says that the step of the state failed, for a reason: what the state's rule says is
// done, and the worker keeps its claim if the flow goes on. Before the state's own flow is over
// the error is *FlowChildError; the others are those of Move.
func (c *FlowClaim) Recover(ctx context.Context, reason string) error {
	var then place
	err := c.say(ctx, func(s *FlowState) ([]log.Part, error) {
		if then = s.place(); s.Step == c.at.step+1 && s.instance.Visit().ID == c.flow.recoveredID(s.Step, s.State, c.Fence) {
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
	if err == nil && then == c.at {
		var s *FlowState
		if s, err = c.flow.now(ctx); err == nil {
			then = s.place()
		}
	}
	return c.moved(ctx, then, err)
}
