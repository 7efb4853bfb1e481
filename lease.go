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

// Lease is a holder and a time: the lease ends by itself then. The zero Lease has no holder.
type Lease struct {
	Holder string
	Until  time.Time // by the log's time
}

// LeaseError reports that somebody else has the lease. It matches log.ErrConflict.
type LeaseError struct {
	Subject events.Subject // of the lease
	Lease   Lease
}

func (e *LeaseError) Error() string {
	return fmt.Sprintf("%s: %q has the lease until %s", e.Subject.Name(), e.Lease.Holder, e.Lease.Until.UTC().Format(time.RFC3339))
}

// Is reports whether target is log.ErrConflict.
func (e *LeaseError) Is(target error) bool { return target == log.ErrConflict }

// Lease takes the lease on a document for a while, or extends the holder's own. A lease does not stop others from
// writing the document: it is shown to them, also with each conflict. What the holder appends through the claim is
// refused once somebody else has the lease. The document need not exist. If somebody else has the lease, the error is
// *LeaseError.
//
// Time is the log's: the time of its newest record, plus the time since this store first asked for it. So a lease ends
// early only if the clock that dates records is set forward.
func (d *Documents) Lease(ctx context.Context, kind, id, holder string, while time.Duration) (*Claim, error) {
	sub, err := d.subject(kind, id)
	if err != nil {
		return nil, err
	}
	return d.lockOf(sub).leaseTo(ctx, sub, holder, while, nil)
}

// Release ends the lease on a document. If somebody else has it, the error is *LeaseError; if nobody has, nothing is
// written.
func (d *Documents) Release(ctx context.Context, kind, id, holder string) error {
	sub, err := d.subject(kind, id)
	if err == nil {
		_, err = d.lockOf(sub).relet(ctx, sub, holder, 0, nil)
	}
	return err
}

// Lease takes the lease on the session for a while, like Documents.Lease for a document. check, unless nil, may refuse
// the lease for the session's present state.
func (s *Session) Lease(ctx context.Context, holder string, while time.Duration, check func(*projector.Outline) error) (*Claim, error) {
	return s.leaseTo(ctx, s.sub, holder, while, check)
}

// Release ends the lease on the session, like Documents.Release for a document.
func (s *Session) Release(ctx context.Context, holder string, check func(*projector.Outline) error) error {
	_, err := s.relet(ctx, s.sub, holder, 0, check)
	return err
}

func (s *Session) leaseTo(ctx context.Context, of events.Subject, holder string, while time.Duration, check func(*projector.Outline) error) (*Claim, error) {
	if while <= 0 {
		return nil, &events.InvalidError{Field: "while", Reason: fmt.Sprintf("%v: want a positive duration", while)}
	}
	return s.relet(ctx, of, holder, while, check)
}

// leaseTypes are the types of records that change a session's lease.
var leaseTypes = []string{events.TypeSessionUpdated}

// relet records in the session that a holder has the lease on a subject for a while; a while of 0 ends it.
func (s *Session) relet(ctx context.Context, of events.Subject, holder string, while time.Duration, check func(*projector.Outline) error) (*Claim, error) {
	if holder == "" || !utf8.ValidString(holder) {
		return nil, &events.InvalidError{Field: "holder", Reason: fmt.Sprintf("%q: want a name, in UTF-8", holder)}
	}
	until, err := s.st.LeaseEnd(ctx, while)
	if err != nil {
		return nil, err
	}
	var l Lease
	if while > 0 {
		l = Lease{holder, until}
	}
	own := s.st.Session(s.sub.ID) // reading a lease must not count as reading the turns
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

// leaseUntil returns a function that makes the events of a holder's claim.
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

// lookFor returns a function that checks whether the lease taken at an offset is still the holder's.
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

// Holder returns the lease on a document, or the zero Lease.
func (d *Documents) Holder(ctx context.Context, kind, id string) (Lease, error) {
	sub, err := d.subject(kind, id)
	if err != nil {
		return Lease{}, err
	}
	return d.lease(ctx, sub)
}

// lockOf returns the session that records the lease on a document.
func (d *Documents) lockOf(sub events.Subject) *Session {
	return d.st.Session("lock/" + sub.Kind + "/" + sub.ID)
}

// lease returns the lease on a document, if it is in effect.
func (d *Documents) lease(ctx context.Context, sub events.Subject) (Lease, error) {
	lock := d.lockOf(sub)
	if lock.sub.Validate() != nil {
		return Lease{}, nil // an id of that length has no room for a lock's prefix
	}
	o, err := d.st.loader.Peek(ctx, lock.sub)
	if err != nil {
		return Lease{}, err
	}
	return d.leaseIn(ctx, o)
}

// leaseIn returns the lease on a session, if it is in effect.
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

// leaseOf reads a session's field lease, which is null after a release.
func leaseOf(fields events.Fields) Lease {
	value, _ := fields.Get("lease")
	var stored *storedLease
	if len(value) == 0 || json.Unmarshal(value, &stored) != nil || stored == nil {
		return Lease{}
	}
	until, _ := stored.Until.Time()
	return Lease{stored.Holder, until}
}

// storedLease is the stored form of the field lease.
type storedLease struct {
	Holder string           `json:"holder"`
	Until  events.Timestamp `json:"until"`
}

// payload returns the event that takes or ends a lease.
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

// logClock tracks the log's time in a process.
type logClock struct {
	mu    sync.Mutex // guards the fields below
	at    time.Time  // when the newest record read was recorded; zero: none was read
	since time.Time  // when it was read, by this machine's monotonic clock
	said  bool       // the disagreement of the clocks has been logged
}

// ClockBound is how far the newest record may be ahead of the clock that dates the next one. The clocks of two machines
// that own the store in turn may differ by that much.
const ClockBound = 90 * time.Second

// LogTime returns the log's time, by which leases, deadlines and documents end: the time of its newest record, plus the
// time since the store was first asked for it. So nothing ends in a store that was not in use. If the newest record is
// more than ClockBound ahead of the clock that dates the next one, one of the two clocks was wrong. Then LogTime is the
// earlier of both until they agree, and a warning is logged.
func (st *Store) LogTime(ctx context.Context) (time.Time, error) {
	recorded := time.Time{}
	ctx = log.NoteDamage(ctx, nil) // the time does not rest on the newest record alone
	for rec, err := range events.Readable(st.Log.ReadBack(ctx, events.Range{Limit: 1})) {
		if err != nil {
			return time.Time{}, err
		}
		recorded = rec.Recorded
	}
	c := st.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	if recorded.IsZero() && c.at.IsZero() {
		recorded = st.Now() // no records, so nothing can have ended
	}
	latest := recorded
	if c.at.After(latest) {
		latest = c.at
	}
	believed, err := st.believed(ctx, latest)
	if err != nil {
		return time.Time{}, err
	}
	if now := c.at.Add(time.Since(c.since)); believed.Equal(latest) && !c.at.IsZero() && !recorded.After(now) {
		return now, nil
	}
	c.at, c.since = believed, time.Now()
	return believed, nil
}

// believed returns said, the log's time, or the time of the clock that dates records if that is earlier by more than
// ClockBound. It asks for that clock only if this process's clock disagrees. The caller holds the lock of the clock.
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

// LeaseTime returns the time from which a new lease lasts: the log's time, or the time of the clock that dates the next
// record if that is later. So in a store that was not in use, a lease has not already ended when it is recorded.
// LeaseTime never decides that a lease has ended.
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
