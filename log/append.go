package log

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/tallylog/tally/events"
)

// youngID is the age up to which a UUIDv7 needs no look-up: well within the time
// for which every backend recognises ids by itself.
const youngID = 30 * time.Second

// Append stores events of one subject, all or none, and returns when they are stored. It stamps events without id or
// time ([Log.Stamp]) and sets sub on events without a subject.
//
// Appending the same events again, now or much later, returns the first Ack with Duplicate set. Calls to one subject
// are stored in the order of the calls.
//
// Errors: *events.InvalidError and ErrTooLarge before anything is tried; *ConflictError if the subject is not as
// expected; *PartialError if the log already has some of the events but not all; ErrUnknown if no answer came, also
// because ctx was done meanwhile; ErrFull and ErrUnavailable; ErrAborted behind an AppendAsync that failed;
// *events.PersonalError if the log is Shared; ctx.Err() if ctx was done before anything was sent. Only after ErrUnknown
// may anything have been written.
func (l *Log) Append(ctx context.Context, sub events.Subject, expect Expect, evs ...events.Event) (Ack, error) {
	return l.append(ctx, sub, expect, false, evs)
}

// AppendBuffered is Append without the promise: the events survive the process and
// are on disk within about a second, but a power cut before that takes them. Other
// readers see them when they are durable, or with Range.Buffered at once.
func (l *Log) AppendBuffered(ctx context.Context, sub events.Subject, expect Expect, evs ...events.Event) (Ack, error) {
	return l.append(ctx, sub, expect, true, evs)
}

func (l *Log) append(ctx context.Context, sub events.Subject, expect Expect, buffered bool, evs []events.Event) (ack Ack, err error) {
	begun := time.Now()
	defer func() { l.config.Observer.Appended(len(evs), time.Since(begun), err) }()
	p, err := l.prepareDecided(sub, expect, evs)
	if err != nil {
		return Ack{}, err
	}
	p.buffered = buffered
	t, err := l.enter(sub)
	if err != nil {
		return Ack{}, err
	}
	if err := l.await(ctx, t); err != nil {
		return Ack{}, err
	}
	ack, err = l.put(ctx, p)
	// The next append of the subject is stored while this one is synced.
	l.leave(t, false)
	if err != nil {
		return ack, err
	}
	return l.settle(ctx, p.sub.Name(), p.buffered, ack, p.era)
}

// put stores an append, here or through the owner.
func (l *Log) put(ctx context.Context, p *appending) (Ack, error) {
	if l.owner != nil {
		return l.owner.append(ctx, p)
	}
	settle, err := l.admit(ctx, p)
	if err != nil {
		return Ack{}, err
	}
	p.era = l.era()
	if l.commit != nil {
		l.commit.coming.Add(1)
		defer l.commit.coming.Add(-1)
	}
	acks, err := l.store(ctx, p)
	err = l.stands(p, err)
	settle(acks, err)
	if err != nil {
		return Ack{}, err
	}
	l.note(p, acks[0])
	return acks[0], nil
}

// Ready returns the error with which the log refuses every append now, or nil: a sync failed, the store is marked as
// moved or as a copy, or it has no room. If an owner stores the appends, only the owner knows, and Ready returns nil.
func (l *Log) Ready(ctx context.Context) error {
	if l.owner != nil {
		return nil
	}
	if l.commit != nil {
		if err := l.commit.failed(); err != nil {
			return err
		}
	}
	if err := l.refusal(ctx); err != nil {
		return err
	}
	if l.config.Host.Room != nil {
		return l.config.Host.Room()
	}
	return nil
}

// admit asks whether an append may be stored. The caller passes the outcome of the append to settle.
func (l *Log) admit(ctx context.Context, list ...*appending) (settle func([]Ack, error), err error) {
	if l.config.Host.Shared && slices.ContainsFunc(list, isPersonal) {
		return nil, fmt.Errorf("append to %s: %w", nameOf(list), &events.PersonalError{Where: sharedStore})
	}
	if err := l.Ready(ctx); err != nil {
		return nil, fmt.Errorf("append to %s: %w", nameOf(list), err)
	}
	if l.config.Host.Admit != nil {
		parts := make([]Part, len(list))
		for i, p := range list {
			parts[i] = Part{Subject: p.sub, Expect: p.expect, Events: p.events}
		}
		if settle, err = l.config.Host.Admit(ctx, parts); err != nil {
			return nil, fmt.Errorf("append to %s: %w", nameOf(list), err)
		}
	}
	if settle == nil {
		settle = func([]Ack, error) {}
	}
	return settle, nil
}

// sharedStore names, in a *events.PersonalError, a store that takes no personal events.
const sharedStore = "a store that others can reach"

func isPersonal(p *appending) bool { return p.sub.Namespace == events.PersonalNamespace }

// Shared reports whether anybody but the user of this machine can reach the log: see Host.Shared.
func (l *Log) Shared() bool { return l.config.Host.Shared }

// stands returns the error of an append, or ErrUnknown if the log has begun to recover since the append was decided:
// the decision may rest on records that are gone.
func (l *Log) stands(p *appending, err error) error {
	if err == nil || !p.era.isOver() || l.isClosed() {
		return err
	}
	return fmt.Errorf("append to %s: %w: %v", p.sub.Name(), ErrUnknown, errEra)
}

// note reports a stored append to the committer, or marks it, and reports its size to the roller.
func (l *Log) note(p *appending, ack Ack) {
	if l.commit != nil {
		l.commit.note(ack.Last, p.era)
	} else {
		l.config.Host.Mark(ack.Last)
	}
	if l.roller != nil && !ack.Duplicate {
		l.roller.stored(p.size)
	}
}

// settle returns when an append that was stored in an era is as durable as the caller asked. A duplicate that was found
// in the log waits like a new event. name is the append's name for an error.
func (l *Log) settle(ctx context.Context, name string, buffered bool, ack Ack, e *era) (Ack, error) {
	if l.commit == nil {
		return ack, nil
	}
	if buffered {
		ack.Durability = Buffered
		return ack, nil
	}
	patience := l.waits.after(l.config.AckWait)
	if err := l.commit.awaitFor(ctx, ack.Last, e, patience); err != nil {
		return Ack{}, fmt.Errorf("append to %s: %w", name, err)
	}
	return ack, nil
}

// AppendAsync is Append without waiting: the Pending has the result. The caller must not change the events' data before
// the append is done. ctx applies to the whole append.
//
// If it fails, later appends of this Log to the same subject that were already waiting fail with ErrAborted and are not
// written. An append that is refused before it is queued (*events.InvalidError, ErrTooLarge) aborts nothing.
func (l *Log) AppendAsync(ctx context.Context, sub events.Subject, expect Expect, evs ...events.Event) *Pending {
	return l.appendAsync(ctx, sub, expect, false, evs, nil)
}

// AppendAsyncBuffered is AppendAsync with the acknowledgement of AppendBuffered.
func (l *Log) AppendAsyncBuffered(ctx context.Context, sub events.Subject, expect Expect, evs ...events.Event) *Pending {
	return l.appendAsync(ctx, sub, expect, true, evs, nil)
}

// appendAsync queues an append behind the append of its link.
func (l *Log) appendAsync(ctx context.Context, sub events.Subject, expect Expect, buffered bool, evs []events.Event, k *link) *Pending {
	begun := time.Now()
	done := &Pending{done: make(chan struct{})}
	p, err := l.prepareDecided(sub, expect, evs)
	if err != nil {
		k.settle(err)
		return done.finish(Ack{}, err)
	}
	p.buffered = buffered
	t, err := l.enter(sub)
	if err != nil {
		k.settle(err)
		return done.finish(Ack{}, err)
	}
	go func() {
		// An append whose context ends in the queue keeps its turn: it has failed, and the appends behind it must learn
		// that in order.
		<-t.turn
		if t.err != nil {
			l.running.Done()
			k.settle(t.err)
			done.finish(Ack{}, t.err)
			return
		}
		err, ack := k.wait(), Ack{}
		if err == nil {
			ack, err = l.put(ctx, p)
		}
		k.settle(err)
		// The next append of the subject is stored while this one is synced.
		l.leave(t, err != nil)
		if err == nil {
			ack, err = l.settle(ctx, p.sub.Name(), p.buffered, ack, p.era)
		}
		l.config.Observer.Appended(len(evs), time.Since(begun), err)
		done.finish(ack, err)
	}()
	return done
}

// Pending is an append under way.
type Pending struct {
	done chan struct{}
	ack  Ack
	err  error
}

func (p *Pending) finish(ack Ack, err error) *Pending {
	p.ack, p.err = ack, err
	close(p.done)
	return p
}

// Done is closed when the append is over.
func (p *Pending) Done() <-chan struct{} { return p.done }

// Wait returns the append's result, or ctx.Err() if ctx is done before; then the
// append goes on.
func (p *Pending) Wait(ctx context.Context) (Ack, error) {
	select {
	case <-p.done:
		return p.ack, p.err
	default:
	}
	select {
	case <-p.done:
		return p.ack, p.err
	case <-ctx.Done():
		return Ack{}, ctx.Err()
	}
}

// appending is an append that passed validation.
type appending struct {
	decided bool // its expectation rests on an earlier state of the subject
	sub     events.Subject
	name    string // the subject in NATS form
	expect  Expect
	events  []events.Event
	msgs    []Outgoing

	// youngUntil is when the first of the caller's ids stops being young; zero if the caller set no id. It is compared
	// when the append's turn comes: later, neither the backend nor the owner remembers the id.
	youngUntil time.Time

	young bool // an id is young, or will be: see recentIDs
	noted bool // the ids are among the recent ones

	size int // approximate size on the server, in bytes

	look    bool // look the ids up among all events of the subject
	tail    bool // look the ids up among the events after the expectation
	guarded bool // appended with Any, and allowed only as the subject's first event

	behind events.Offset // offset of the series' event that this Log stored just before; 0: none, or another writer wrote since

	buffered bool // acknowledge before the sync
	unshown  bool // the owner does not wait for its trees of files

	era *era // in which the append is decided and stored

	// State of the attempts in store.
	exact   Exactly   // expectation of the last publication
	tried   Exactly   // expectation that the backend refused
	claimed Exactly   // offset that the backend reported for the subject
	found   []located // for each event, in the last look-up
}

// prepareDecided prepares an append that may rest on a decision. An append of a series never does.
func (l *Log) prepareDecided(sub events.Subject, expect Expect, evs []events.Event) (*appending, error) {
	p, err := l.prepare(sub, expect, evs)
	if err != nil {
		return nil, err
	}
	p.decided = expect.kind == expectAt || expect.kind == expectSince
	return p, l.unread(sub, expect)
}

// prepare refuses invalid events and encodes the others.
func (l *Log) prepare(sub events.Subject, expect Expect, evs []events.Event) (*appending, error) {
	if err := sub.Validate(); err != nil {
		return nil, err
	}
	switch {
	case sub.Kind == events.KindUnit:
		return nil, &events.InvalidError{Field: "subject", Reason: "only the log writes records of kind unit"}
	case len(evs) == 0:
		return nil, &events.InvalidError{Field: "events", Reason: "missing: an append has at least one event"}
	case len(evs) > events.MaxAppend:
		return nil, &SizeError{Index: -1, What: "events", Size: len(evs), Max: events.MaxAppend}
	}
	p := &appending{sub: sub, name: sub.NATS(), expect: expect,
		events: make([]events.Event, len(evs)), msgs: make([]Outgoing, len(evs))}
	now := l.config.Now()
	for i, e := range evs {
		if e.Subject == (events.Subject{}) {
			e.Subject = sub
		}
		if e.Subject != sub {
			return nil, &events.InvalidError{Field: "subject", Reason: fmt.Sprintf("%s in an append to %s", e.Subject.Name(), p.sub.Name())}
		}
		if e.ID == "" {
			p.young = true
		} else {
			p.age(e.ID, now, expect != At(0))
		}
		check := e.Validate
		if !l.config.Host.Merge {
			e = l.Stamp(e)
			check = e.Validate
		} else if e.Erased() != "" {
			check = e.ValidateAttributes
		}
		if err := check(); err != nil {
			return nil, err
		}
		if events.GuardOf(e.Type) == events.GuardSince && expect.kind == expectAny {
			p.guarded = true
		}
		out := Outgoing{ID: e.MsgID(), Header: events.AppendHeader(make([]byte, 0, roomOf(e)), e), Data: e.Data}
		if n := len(out.Data); n > events.MaxData {
			return nil, &SizeError{Index: i, What: "data", Size: n, Max: events.MaxData}
		}
		n := out.headerSize()
		if n > events.MaxHeaders {
			return nil, &SizeError{Index: i, What: "headers", Size: n, Max: events.MaxHeaders}
		}
		p.size += len(out.Data) + n
		p.events[i], p.msgs[i] = e, out
	}
	if p.expect.kind == expectSince && p.expect.types == "" {
		p.expect = Any
	}
	if p.guarded {
		p.expect, p.look, p.youngUntil = At(0), false, time.Time{}
	}
	return p, p.distinct()
}

// roomOf returns about the size of an event's header, with room for some characters that are escaped.
func roomOf(e events.Event) int {
	n := 192 + len(e.ID) + len(e.Source) + len(e.Type) + len(e.Subject.ID)
	for name, value := range e.Extensions {
		n += len(name) + len(value) + len("ce-: \r\n")
	}
	return n
}

// distinct refuses an append that has one identity twice.
func (p *appending) distinct() error {
	if len(p.msgs) == 1 {
		return nil
	}
	seen := make(map[string]int, len(p.msgs))
	for i, m := range p.msgs {
		if first, twice := seen[m.ID]; twice {
			return &events.InvalidError{Field: "id", Reason: fmt.Sprintf("events %d and %d of the append have the same source and id %q", first, i, p.events[i].ID)}
		}
		seen[m.ID] = i
	}
	return nil
}

// age notes whether an id that the caller gave is young, or will be, and, if it may be stored already, whether it needs
// a look-up, now or later.
func (p *appending) age(id string, now time.Time, mayBeStored bool) {
	made, ok := timeOfID(id)
	until := made.Add(youngID)
	p.young = p.young || ok && until.After(now)
	switch {
	case !mayBeStored:
	case !ok || made.After(now) || !until.After(now):
		p.look = true
	case p.youngUntil.IsZero() || until.Before(p.youngUntil):
		p.youngUntil = until
	}
}

// timeOfID returns the time at which a UUIDv7 says it was made.
func timeOfID(id string) (time.Time, bool) {
	if len(id) != 36 {
		return time.Time{}, false
	}
	u, err := uuid.Parse(id)
	if err != nil || u.Version() != 7 {
		return time.Time{}, false
	}
	ms := int64(u[0])<<40 | int64(u[1])<<32 | int64(u[2])<<24 | int64(u[3])<<16 | int64(u[4])<<8 | int64(u[5])
	return time.UnixMilli(ms), true
}
