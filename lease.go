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

// Lease says that somebody works on a document. It keeps nobody from writing: it is shown
// to others, also with each conflict, and ends by itself. The zero Lease is nobody's.
type Lease struct {
	Holder string
	Until  time.Time // by the log's time
}

// LeaseError says that somebody else has the lease on a document. It matches
// log.ErrConflict.
type LeaseError struct {
	Subject events.Subject // of the document
	Lease   Lease
}

func (e *LeaseError) Error() string {
	return fmt.Sprintf("%s: %q has the lease until %s", e.Subject.Name(), e.Lease.Holder, e.Lease.Until.UTC().Format(time.RFC3339))
}

// Is reports whether target is log.ErrConflict.
func (e *LeaseError) Is(target error) bool { return target == log.ErrConflict }

// Lease takes the lease on a document for a while, or longer if the holder has it already.
// The document need not be there. If somebody else has it, the error is *LeaseError.
//
// Time is the log's: that of its newest record, and what passed since this store was first
// asked for it. So a lease ends early only if the clock that records are dated by is set forth.
func (d *Documents) Lease(ctx context.Context, kind, id, holder string, while time.Duration) (Lease, error) {
	if holder == "" || !utf8.ValidString(holder) {
		return Lease{}, &events.InvalidError{Field: "holder", Reason: fmt.Sprintf("%q names nobody", holder)}
	}
	if while <= 0 {
		return Lease{}, &events.InvalidError{Field: "while", Reason: fmt.Sprintf("%v is no time at all", while)}
	}
	var l Lease
	from, err := d.st.LeaseTime(ctx)
	if err != nil {
		return l, err
	}
	err = d.change(ctx, kind, id, func(have Lease) (*Lease, error) {
		if have.Holder != "" && have.Holder != holder {
			return nil, &LeaseError{events.Document(d.st.config.Namespace, kind, id), have}
		}
		l = Lease{holder, from.Add(while)}
		return &l, nil
	})
	return l, err
}

// Release gives a lease back. If somebody else has it, the error is *LeaseError; if
// nobody has, nothing is to be done.
func (d *Documents) Release(ctx context.Context, kind, id, holder string) error {
	return d.change(ctx, kind, id, func(have Lease) (*Lease, error) {
		switch have.Holder {
		case "":
			return nil, nil
		case holder:
			return &Lease{}, nil
		}
		return nil, &LeaseError{events.Document(d.st.config.Namespace, kind, id), have}
	})
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

// leaseIn returns the lease that a session holds, if it is not over.
func (d *Documents) leaseIn(ctx context.Context, o *projector.Outline) (Lease, error) {
	raw, _ := o.Ledger().Fields.Get("lease")
	var stored *storedLease
	if len(raw) == 0 || json.Unmarshal(raw, &stored) != nil || stored == nil {
		return Lease{}, nil
	}
	now, err := d.st.LogTime(ctx)
	until, ok := stored.Until.Time()
	if err != nil || !ok || !until.After(now) {
		return Lease{}, err
	}
	return Lease{stored.Holder, until}, nil
}

// storedLease is the session's field: null once it is released.
type storedLease struct {
	Holder string           `json:"holder"`
	Until  events.Timestamp `json:"until"`
}

// payload is the event by which a lease is taken, or given back.
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

// change lets a function say what becomes of a lease; nil: it stays as it is.
func (d *Documents) change(ctx context.Context, kind, id string, decide func(have Lease) (*Lease, error)) error {
	sub, err := d.subject(kind, id)
	if err != nil {
		return err
	}
	_, err = d.lockOf(sub).Update(ctx, nil, func(o *projector.Outline) ([]events.Payload, error) {
		have, err := d.leaseIn(ctx, o)
		if err != nil {
			return nil, err
		}
		next, err := decide(have)
		if err != nil || next == nil {
			return nil, err
		}
		p, err := next.payload()
		return []events.Payload{p}, err
	})
	return err
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
