package tally

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
)

// Claim is the right of one holder to something for a while: an item of a queue, a flow, an
// agent, a document. The log decides who holds it: a record is the claim, and its offset the
// fence. A later claim has a higher fence. A claim whose lease is over stays in effect until
// somebody else makes one. It is safe for concurrent use.
type Claim struct {
	Lease                  // as of the time when the claim was made
	Subject events.Subject // of the item, flow, agent or document
	Fence   events.Offset

	st    *Store
	terms ClaimTerms
	mu    sync.Mutex
	last  events.Offset // record of terms.In up to which the holder knows it
}

// ClaimTerms describes how a kind of claim is recorded in the log.
type ClaimTerms struct {
	In    events.Subject // has the records of claims and renewals
	Types []string       // of records that may change the holder; default: every record of In
	While time.Duration  // how long a renewal lasts

	// Until returns the event of In that extends the lease. With the zero time, the event ends the claim.
	Until func(ctx context.Context, at time.Time) (events.Event, error)

	// Look returns the newest record of In, and *FencedError if the claim is not in effect.
	Look func(ctx context.Context) (events.Offset, error)
}

// FencedError reports that a claim is not in effect any more: another holder has a later one,
// or it was ended. It matches log.ErrConflict.
type FencedError struct {
	Subject events.Subject // of the item, flow, agent or document
	Fence   events.Offset  // of the claim
	Have    events.Offset  // of the claim in effect; 0: no claim, or the lease of an agent or a document
	Holder  string         // holder of the claim in effect; "": nobody
	Outcome string         // of a finished item or flow
	Stale   events.Offset  // offset of the report, which is kept without effect; 0: it is not kept
}

func (e *FencedError) Error() string {
	now := "nobody has it"
	switch {
	case e.Outcome != "":
		now = "it is finished (" + e.Outcome + ")"
	case e.Have != 0:
		now = fmt.Sprintf("%q has it since %v", e.Holder, e.Have)
	case e.Holder != "":
		now = fmt.Sprintf("%q has it", e.Holder)
	}
	return fmt.Sprintf("%s: the claim %v is over: %s", e.Subject.Name(), e.Fence, now)
}

// Is reports whether target is log.ErrConflict.
func (e *FencedError) Is(target error) bool { return target == log.ErrConflict }

// Hold returns the claim of the record at a fence. It does no I/O.
func (st *Store) Hold(sub events.Subject, l Lease, fence events.Offset, terms ClaimTerms) *Claim {
	return &Claim{Lease: l, Subject: sub, Fence: fence, st: st, terms: terms, last: fence}
}

// LeaseEnd returns when a lease that begins now and lasts for while ends: see LeaseTime.
func (st *Store) LeaseEnd(ctx context.Context, while time.Duration) (time.Time, error) {
	now, err := st.LeaseTime(ctx)
	return now.Add(while).Truncate(time.Millisecond), err
}

// Renew extends the lease by its original duration from now on. A holder renews at half its lease. If the claim is not
// in effect any more, the error is *FencedError.
func (c *Claim) Renew(ctx context.Context) (until time.Time, err error) {
	if until, err = c.st.LeaseEnd(ctx, c.terms.While); err != nil {
		return time.Time{}, err
	}
	if err = c.extend(ctx, until); !events.IsStored(err) {
		return time.Time{}, err
	}
	return until, err
}

// Release ends the claim, so that others can claim at once. If it is not in effect any more, the error is *FencedError.
func (c *Claim) Release(ctx context.Context) error {
	err := c.extend(ctx, time.Time{})
	if events.IsStored(err) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.last = c.Fence // the next append finds the claim ended, and is refused
	}
	return err
}

func (c *Claim) extend(ctx context.Context, until time.Time) error {
	e, err := c.terms.Until(ctx, until)
	if err == nil {
		_, err = c.Append(ctx, log.Part{Subject: c.terms.In, Events: []events.Event{e}})
	}
	return err
}

// Append appends parts, all or none, provided that the claim is in effect. Otherwise nothing is written, and the error
// is *FencedError. It sets the expectation of the part for the claim's own session, or adds a part that guards it: see
// log.ErrGuard. Other errors are those of Store.AppendAll.
func (c *Claim) Append(ctx context.Context, parts ...log.Part) ([]log.Ack, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all, own := c.guarded(parts)
	for try := 1; ; try++ {
		all[own].Expect = c.expect(c.last)
		acks, err := c.send(ctx, all)
		if events.IsStored(err) && !acks[own].Duplicate {
			c.last = max(c.last, acks[own].Last)
		}
		if !c.isOvertaken(err) || try == maxDecisions {
			return acks[:min(len(acks), len(parts))], err
		}
		last, err := c.terms.Look(ctx)
		if err != nil {
			return nil, err
		}
		c.last = last
	}
}

// send appends parts; a single part needs no batch.
func (c *Claim) send(ctx context.Context, parts []log.Part) ([]log.Ack, error) {
	if len(parts) > 1 {
		return c.st.AppendAll(ctx, parts...)
	}
	ack, err := c.st.Append(ctx, parts[0].Subject, parts[0].Expect, parts[0].Events...)
	return []log.Ack{ack}, err
}

// guarded returns the parts with the claim's own, and the index of that one.
func (c *Claim) guarded(parts []log.Part) (all []log.Part, own int) {
	all = slices.Clone(parts)
	for i, p := range all {
		all[i].Events = make([]events.Event, len(p.Events))
		for n, e := range p.Events {
			all[i].Events[n] = c.st.Stamp(e)
		}
	}
	own = slices.IndexFunc(all, func(p log.Part) bool { return p.Subject == c.terms.In })
	if own < 0 {
		return append(all, log.Part{Subject: c.terms.In}), len(all)
	}
	return all, own
}

// Part returns a part for an append that the caller makes, such as a transaction's. If the claim ends before the
// append, the append fails with log.ErrConflict. If it has ended already, the error is *FencedError.
func (c *Claim) Part(ctx context.Context, evs ...events.Event) (log.Part, error) {
	last, err := c.terms.Look(ctx)
	return log.Part{Subject: c.terms.In, Expect: c.expect(last), Events: evs}, err
}

// expect returns the expectation that the claim is unchanged since a record.
func (c *Claim) expect(last events.Offset) log.Expect {
	if len(c.terms.Types) > 0 {
		return log.Since(last, c.terms.Types...)
	}
	return log.At(last)
}

// isOvertaken reports whether an append was refused because of a record behind the last one that the holder knew.
func (c *Claim) isOvertaken(err error) bool {
	conflict, ok := errors.AsType[*log.ConflictError](err)
	return errors.Is(err, log.ErrConflict) && (!ok || conflict.Subject == c.terms.In || conflict.Subject == events.Subject{})
}
