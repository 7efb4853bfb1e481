package tally

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// Lease says who has something, and until when: it ends by itself. The zero Lease is nobody's.
type Lease struct {
	Holder string
	Until  time.Time // by the log's time
}

// LeaseError reports that somebody else has what was asked for. It matches log.ErrConflict.
type LeaseError struct {
	Subject events.Subject // what they have
	Lease   Lease
}

func (e *LeaseError) Error() string {
	return fmt.Sprintf("%s: %q has the lease until %s", e.Subject.Name(), e.Lease.Holder, e.Lease.Until.UTC().Format(time.RFC3339))
}

// Is reports whether target is log.ErrConflict.
func (e *LeaseError) Is(target error) bool { return target == log.ErrConflict }

// Lease takes the lease on a document for a while, or longer if the holder has it already. It
// keeps nobody from writing the document: it is shown to others, also with each conflict.
// What the holder appends by the claim is refused once somebody else has the lease. The
// document need not be there. If somebody else has the lease, the error is *LeaseError.
//
// Time is the log's: that of its newest record, and what passed since this store was first
// asked for it. So a lease ends early only if the clock that records are dated by is set forth.
func (d *Documents) Lease(ctx context.Context, kind, id, holder string, while time.Duration) (*Claim, error) {
	sub, err := d.subject(kind, id)
	if err != nil {
		return nil, err
	}
	return d.lockOf(sub).leaseTo(ctx, sub, holder, while, nil)
}

// Release ends the lease on a document. If somebody else has it, the error is *LeaseError; if
// nobody has, nothing is written.
func (d *Documents) Release(ctx context.Context, kind, id, holder string) error {
	sub, err := d.subject(kind, id)
	if err == nil {
		_, err = d.lockOf(sub).relet(ctx, sub, holder, 0, nil)
	}
	return err
}

// Lease takes the lease on the session for a while, as Documents.Lease does that on a
// document. check, if it is not nil, may refuse that for the session as it is then.
func (s *Session) Lease(ctx context.Context, holder string, while time.Duration, check func(*projector.Outline) error) (*Claim, error) {
	return s.leaseTo(ctx, s.sub, holder, while, check)
}

// Release ends the lease on the session, as Documents.Release does that on a document.
func (s *Session) Release(ctx context.Context, holder string, check func(*projector.Outline) error) error {
	_, err := s.relet(ctx, s.sub, holder, 0, check)
	return err
}

func (s *Session) leaseTo(ctx context.Context, of events.Subject, holder string, while time.Duration, check func(*projector.Outline) error) (*Claim, error) {
	if while <= 0 {
		return nil, &events.InvalidError{Field: "while", Reason: fmt.Sprintf("%v is no time at all", while)}
	}
	return s.relet(ctx, of, holder, while, check)
}

// leaseTypes are those of records that say who has the lease on a session.
var leaseTypes = []string{events.TypeSessionUpdated}

// relet has a holder have the lease on a subject, which the session records, for a while: 0
// ends it.
func (s *Session) relet(ctx context.Context, of events.Subject, holder string, while time.Duration, check func(*projector.Outline) error) (*Claim, error) {
	if holder == "" || !utf8.ValidString(holder) {
		return nil, &events.InvalidError{Field: "holder", Reason: fmt.Sprintf("%q names nobody", holder)}
	}
	from, err := s.st.LeaseTime(ctx)
	if err != nil {
		return nil, err
	}
	var l Lease
	if while > 0 {
		l = Lease{holder, from.Add(while)}
	}
	own := s.st.Session(s.sub.ID) // what is known of leases says nothing of turns
	ack, err := own.Update(ctx, leaseTypes, func(o *projector.Outline) ([]events.Payload, error) {
		if check != nil {
			if err := check(o); err != nil {
				return nil, err
			}
		}
		have := leaseOf(o.Ledger().Fields)
		now, err := s.st.LogTime(ctx)
		switch {
		case err != nil:
			return nil, err
		case have.Holder != holder && have.Until.After(now):
			return nil, &LeaseError{of, have}
		case have.Holder != holder && while == 0:
			return nil, nil
		}
		p, err := l.payload()
		return []events.Payload{p}, err
	})
	if !events.IsStored(err) {
		return nil, err
	}
	return s.st.Hold(of, l, ack.Last, ClaimTerms{In: s.sub, Types: leaseTypes, While: while, Until: own.leaseUntil(holder), Look: own.lookFor(of, holder, ack.Last)}), err
}

// leaseUntil makes the events of a holder's claim.
func (s *Session) leaseUntil(holder string) func(context.Context, time.Time) (events.Event, error) {
	return func(_ context.Context, at time.Time) (events.Event, error) {
		l := Lease{holder, at}
		if at.IsZero() {
			l = Lease{}
		}
		p, err := l.payload()
		if err != nil {
			return events.Event{}, err
		}
		return events.New(s.st.config.Source, s.sub, p)
	}
}

// lookFor looks whether the lease that a holder took at an offset is still that holder's.
func (s *Session) lookFor(of events.Subject, holder string, fence events.Offset) func(context.Context) (events.Offset, error) {
	return func(ctx context.Context) (events.Offset, error) {
		o, err := s.st.loader.Peek(ctx, s.sub)
		if err != nil {
			return 0, err
		}
		if now := leaseOf(o.Ledger().Fields); now.Holder != holder {
			return 0, &FencedError{Subject: of, Fence: fence, Holder: now.Holder}
		}
		return o.Offset(), nil
	}
}

// Holder returns the lease on a document, the zero Lease if nobody has it.
func (d *Documents) Holder(ctx context.Context, kind, id string) (Lease, error) {
	sub, err := d.subject(kind, id)
	if err != nil {
		return Lease{}, err
	}
	return d.lease(ctx, sub)
}

// lockOf is the session that knows who has the lease on a document.
func (d *Documents) lockOf(sub events.Subject) *Session {
	return d.st.Session("lock/" + sub.Kind + "/" + sub.ID)
}

// lease returns the lease on a document that is in effect.
func (d *Documents) lease(ctx context.Context, sub events.Subject) (Lease, error) {
	lock := d.lockOf(sub)
	if lock.sub.Validate() != nil {
		return Lease{}, nil // an id of that length has no room for one
	}
	o, err := d.st.loader.Peek(ctx, lock.sub)
	if err != nil {
		return Lease{}, err
	}
	return d.leaseIn(ctx, o)
}

// leaseIn returns the lease on a session, if it is not over.
func (d *Documents) leaseIn(ctx context.Context, o *projector.Outline) (Lease, error) {
	l := leaseOf(o.Ledger().Fields)
	if l.Holder == "" {
		return l, nil
	}
	now, err := d.st.LogTime(ctx)
	if err != nil || !l.Until.After(now) {
		return Lease{}, err
	}
	return l, nil
}

// leaseOf reads a session's field lease: it is null when nobody has it.
func leaseOf(fields events.Fields) Lease {
	raw, _ := fields.Get("lease")
	var stored *storedLease
	if len(raw) == 0 || json.Unmarshal(raw, &stored) != nil || stored == nil {
		return Lease{}
	}
	until, _ := stored.Until.Time()
	return Lease{stored.Holder, until}
}

// storedLease is the field lease of a session.
type storedLease struct {
	Holder string           `json:"holder"`
	Until  events.Timestamp `json:"until"`
}

// payload is the event by which a lease is taken, or ended.
func (l Lease) payload() (*events.SessionUpdated, error) {
	value := events.Raw("null")
	if l.Holder != "" {
		var err error
		if value, err = json.Marshal(storedLease{l.Holder, events.TimestampOf(l.Until)}); err != nil {
			return nil, err
		}
	}
	return &events.SessionUpdated{Set: events.Fields{{Name: "lease", Value: value}}}, nil
}

// logClock is what a process knows of the log's time.
type logClock struct {
	mu    sync.Mutex // guards what follows
	at    time.Time  // recorded with the newest record that was looked at; zero: none was
	since time.Time  // when that was, by the clock of this machine that nobody sets
	said  bool       // that the log's time is not believed
}

// ClockBound is how far the newest record may be ahead of the clock that dates the next one.
// Two machines of which the owner is the one and then the other may differ by that much.
const ClockBound = 90 * time.Second

// LogTime is the time by the log, by which leases, deadlines and documents are over: when its
// newest record was recorded, and what passed since the store was first asked. So in a store
// at rest nothing ends. A record that is ahead of the clock which dates the next one, by more
// than ClockBound, was dated by a clock that was wrong, or that clock is wrong now: then it is
// the earlier one of both, until they agree, and the log of the process says so.
func (st *Store) LogTime(ctx context.Context) (time.Time, error) {
	newest := time.Time{}
	ctx = log.NoteDamage(ctx, nil) // the time does not rest on the newest record alone
	for rec, err := range events.Readable(st.Log.ReadBack(ctx, events.Range{Limit: 1})) {
		if err != nil {
			return time.Time{}, err
		}
		newest = rec.Recorded
	}
	c := st.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	if newest.IsZero() && c.at.IsZero() {
		newest = st.Now() // nothing was recorded, so nothing can be over
	}
	latest := newest
	if c.at.After(latest) {
		latest = c.at
	}
	believed, err := st.believed(ctx, latest)
	if err != nil {
		return time.Time{}, err
	}
	if now := c.at.Add(time.Since(c.since)); believed.Equal(latest) && !c.at.IsZero() && !newest.After(now) {
		return now, nil
	}
	c.at, c.since = believed, time.Now()
	return believed, nil
}

// believed returns a time that the log says, or the time of the clock that dates records, if
// that is earlier by more than ClockBound. That clock is asked only if the clock of this
// process does not agree. The caller holds the lock of the clock.
func (st *Store) believed(ctx context.Context, said time.Time) (time.Time, error) {
	if !said.After(st.Now().Add(ClockBound)) {
		return said, nil
	}
	clock, err := st.Log.Clock(ctx)
	if err != nil || clock.IsZero() || !said.After(clock.Add(ClockBound)) {
		return said, err
	}
	if !st.clock.said {
		st.clock.said = true
		st.config.Logger.Warn("the newest record is ahead of the clock: leases and documents last until both agree", "record", said, "clock", clock)
	}
	return clock, nil
}

// LeaseTime is from when on a lease lasts, or any other time that begins now: the log's time,
// or, in a store that was at rest, what the clock shows by which the next record is dated. So a
// lease is not over with the very record by which it is taken. Nothing is over by this time.
func (st *Store) LeaseTime(ctx context.Context) (time.Time, error) {
	now, err := st.LogTime(ctx)
	if err != nil {
		return now, err
	}
	clock, err := st.Log.Clock(ctx)
	if clock.After(now) {
		now = clock
	}
	return now, err
}
