package log

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tallylog/tally/events"
)

// Part is an append to one subject within AppendAll. Without events it is a guard: the other parts are stored only if
// its subject is as expected.
type Part struct {
	Subject events.Subject
	Expect  Expect
	Events  []events.Event
}

// AppendAll appends to several subjects, all parts or none, even across a crash. A reader never sees some of them
// without the others, unless it asks for records that are not durable yet (Range.Buffered). It returns an Ack for each
// part; the Ack of a guard is empty. Between the events of a part there may be events of others.
//
// Each part is like an [Log.Append] of its own: its events are stamped, limited, and recognised when they are appended
// again. All parts together have at most events.MaxAppend events, and there are at most that many parts. The subjects
// differ. Parts of one event each are stored in the order in which they are passed. Calls with a subject in common are
// stored in the order of the calls.
//
// Errors are those of Append. A *ConflictError and a *PartialError name the subject. Only servers that others run cause
// ErrGuard: there, each guard needs an event of another part that has no expectation. All events of a part but the
// first have none, and no event of a part that expects Any has one.
func (l *Log) AppendAll(ctx context.Context, parts ...Part) ([]Ack, error) {
	u, err := l.beginAll(parts)
	if err != nil {
		return nil, err
	}
	return u.run(ctx)
}

// batch is an append to several subjects. It has a ticket in the queue of each.
type batch struct {
	l       *Log
	begun   time.Time
	given   []Part
	parts   []*appending
	tickets []*ticket
	events  int
}

// beginAll queues a batch for its subjects. The caller calls run next.
func (l *Log) beginAll(list []Part) (*batch, error) {
	if n := len(list); n > events.MaxAppend {
		return nil, &SizeError{Index: -1, What: "parts", Size: n, Max: events.MaxAppend}
	}
	u := &batch{l: l, begun: time.Now(), given: list, parts: make([]*appending, len(list))}
	known := make(map[events.Subject]bool, len(list))
	for i, p := range list {
		if known[p.Subject] {
			return nil, &events.InvalidError{Field: fmt.Sprintf("parts[%d].subject", i), Reason: "another part has " + p.Subject.Name()}
		}
		known[p.Subject] = true
		var err error
		if u.parts[i], err = l.preparePart(p); err != nil {
			return nil, err
		}
		u.events += len(p.Events)
	}
	switch {
	case u.events == 0:
		return nil, &events.InvalidError{Field: "events", Reason: "missing: an append has at least one event"}
	case u.events > events.MaxAppend:
		return nil, &SizeError{Index: -1, What: "events", Size: u.events, Max: events.MaxAppend}
	}
	var err error
	u.tickets, err = l.enterAll(u.parts)
	return u, err
}

func (l *Log) preparePart(p Part) (*appending, error) {
	if len(p.Events) > 0 {
		return l.prepareDecided(p.Subject, p.Expect, p.Events)
	}
	if p.Expect.kind == expectAny || p.Expect.kind == expectSince && p.Expect.types == "" {
		return nil, &events.InvalidError{Field: "expect", Reason: "missing: a part without events is a guard of " + p.Subject.Name() + " and needs an expectation"}
	}
	if err := p.Subject.Validate(); err != nil {
		return nil, err
	}
	return &appending{sub: p.Subject, name: p.Subject.NATS(), expect: p.Expect, decided: true}, l.unread(p.Subject, p.Expect)
}

// run stores the batch in its turn.
func (u *batch) run(ctx context.Context) (acks []Ack, err error) {
	l := u.l
	defer func() { l.config.Observer.Appended(u.events, time.Since(u.begun), err) }()
	if err := l.awaitAll(ctx, u.tickets); err != nil {
		return nil, err
	}
	acks, err = u.store(ctx)
	if err != nil || l.commit == nil {
		return acks, err
	}
	return acks, l.settleAll(ctx, u.parts, acks)
}

// begin notes the era in which the batch is decided and stored.
func (u *batch) begin(e *era) {
	for _, p := range u.parts {
		p.era = e
	}
}

// store stores the batch, and leaves the queues.
func (u *batch) store(ctx context.Context) ([]Ack, error) {
	if err := ctx.Err(); err != nil {
		u.l.leaveAll(u.tickets)
		return nil, fmt.Errorf("append to %s: not written: %w", nameOf(u.parts), err)
	}
	if u.l.redoes(u.parts) {
		return u.redoable(ctx)
	}
	return u.aside(ctx, nil, func() ([]Ack, error) { return u.put(ctx) })
}

// aside runs work, and leaves the queues. If ctx or patience ends before, the work continues in the background, and the
// outcome is unknown.
func (u *batch) aside(ctx context.Context, patience <-chan struct{}, work func() ([]Ack, error)) ([]Ack, error) {
	type outcome struct {
		acks []Ack
		err  error
	}
	u.keep()
	over := make(chan outcome, 1)
	go func() {
		defer u.l.leaveAll(u.tickets)
		acks, err := work()
		over <- outcome{acks, err}
	}()
	err := error(context.DeadlineExceeded)
	select {
	case got := <-over:
		return got.acks, got.err
	case <-patience:
	case <-ctx.Done():
		err = ctx.Err()
	}
	return nil, fmt.Errorf("append to %s: %w: %v", nameOf(u.parts), ErrUnknown, err)
}

// keep copies the events' data: the caller may change it when the call is over, and the work may last longer.
func (u *batch) keep() {
	for _, p := range u.parts {
		for i := range p.events {
			p.events[i].Data = bytes.Clone(p.events[i].Data)
			p.msgs[i].Data = p.events[i].Data
		}
	}
}

// settleAll returns when all stored parts are durable.
func (l *Log) settleAll(ctx context.Context, parts []*appending, acks []Ack) error {
	last := Ack{}
	for _, ack := range acks {
		last.Last = max(last.Last, ack.Last)
	}
	_, err := l.settle(ctx, nameOf(parts), false, last, parts[0].era)
	return err
}

// put stores the batch as one publication, here or through the owner.
func (u *batch) put(ctx context.Context) ([]Ack, error) {
	l := u.l
	if l.owner != nil {
		return l.owner.appendAll(ctx, u.parts)
	}
	settle, err := l.admit(ctx, u.parts...)
	if err != nil {
		return nil, err
	}
	u.begin(l.era())
	acks, err := l.store(ctx, u.parts...)
	err = l.stands(u.parts[0], err)
	settle(acks, err)
	if err != nil {
		return nil, err
	}
	for i, p := range u.parts {
		if len(p.msgs) > 0 {
			l.note(p, acks[i])
		}
	}
	return acks, nil
}

// The owner of a server does not store a batch as an atomic batch of NATS: the server stores four hundred of those in a
// second, however many run side by side. The log writes a record of its own with a copy of all events, the redo record,
// and behind it the events as ordinary records. The batch keeps its turn in all queues until every event is stored, so
// nobody else writes to the subjects. The watermark stays below the batch meanwhile, so no reader sees a part of it. If
// an owner finds a redo record at the end of the log, it appends the missing events before any reader starts (redo). So
// once the redo record is stored, the batch is stored, even across a crash.

// maxRedone bounds the bytes of all events of a batch with a redo record. A larger one is stored as an atomic batch of
// NATS, because writing it twice would take longer.
const maxRedone = 1 << 20

// redoes reports whether a batch is stored with a redo record.
func (l *Log) redoes(parts []*appending) bool {
	if l.commit == nil || !l.config.Host.Owner || len(parts) == 1 {
		return false
	}
	size := 0
	for _, p := range parts {
		size += p.size
	}
	return size <= maxRedone
}

// redoable stores the batch with a redo record, and leaves the queues. If ctx ends it continues in the background, and
// the outcome is unknown.
func (u *batch) redoable(ctx context.Context) ([]Ack, error) {
	l := u.l
	u.begin(l.era())
	acks, err := u.decide(ctx)
	if acks != nil || err != nil {
		l.leaveAll(u.tickets)
		return acks, l.stands(u.parts[0], err)
	}
	record, err := u.record()
	if err != nil {
		l.leaveAll(u.tickets)
		return nil, err
	}
	settle, err := l.admit(ctx, u.parts...)
	if err != nil {
		l.leaveAll(u.tickets)
		return nil, err
	}
	patience := l.waits.after(l.config.AckWait)
	return u.aside(ctx, patience, func() ([]Ack, error) {
		acks, err := u.publish(record)
		settle(acks, err)
		return acks, err
	})
}

// decide checks whether the batch may be stored. Nobody else writes to its subjects, so the result holds until its turn
// is over. It returns Acks instead if the log has the events.
func (u *batch) decide(ctx context.Context) ([]Ack, error) {
	for _, p := range u.parts {
		p.tail = p.expect.kind != expectAny // identities of a writer who knows the subject's end come after it
	}
	_, acks, err := u.l.decideAll(ctx, u.parts)
	return acks, err
}

// record returns the redo record.
func (u *batch) record() (*appending, error) {
	e, err := redoRecord(u.parts)
	if err != nil {
		return nil, err
	}
	e = u.l.Stamp(e)
	out := Outgoing{ID: e.MsgID(), Header: events.AppendHeader(make([]byte, 0, 512), e), Data: e.Data}
	return &appending{era: u.parts[0].era, sub: e.Subject, name: e.Subject.NATS(), events: []events.Event{e}, msgs: []Outgoing{out}, size: len(e.Data)}, nil
}

// publish stores the redo record, and then all events, until all are stored or the log is closed. Nothing is published
// after the end of the era: the redo record may be gone by then, and insist stores it again.
func (u *batch) publish(record *appending) ([]Ack, error) {
	l := u.l
	l.commit.coming.Add(1)
	defer l.commit.coming.Add(-1)
	h, receipt, err := u.beginWith(record)
	if h == nil {
		return nil, fmt.Errorf("append to %s: %w", nameOf(u.parts), err)
	}
	// The commit point: if the redo record is stored, everything will be.
	var acks []Ack
	if err == nil {
		l.note(record, Ack{Last: receipt.Last})
		acks, err = u.publishEvents()
	}
	if err != nil {
		l.doubtful.Store(true)
		if acks, err = u.insist(record, h); err != nil {
			return nil, err // the watermark stays where it is
		}
	}
	l.commit.letGo(h)
	return acks, nil
}

// beginWith stores the redo record, and repeats that while the backend is busy. The hold is nil if the record was refused. It
// exists only during a try: however long a unit is refused, others do not wait for it.
func (u *batch) beginWith(record *appending) (h *hold, receipt Receipt, err error) {
	l, ctx := u.l, record.era.ctx
	for try := range maxTries {
		if err := pause(ctx, try); err != nil {
			return nil, Receipt{}, fmt.Errorf("%w: %v", ErrUnavailable, context.Cause(ctx))
		}
		h = l.commit.hold()
		if receipt, err = l.backend.Publish(ctx, single(record, 0)); err == nil || errors.Is(err, ErrUnknown) {
			return h, receipt, err
		}
		if l.commit.letGo(h); !errors.Is(err, ErrBusy) {
			return nil, Receipt{}, err
		}
	}
	return nil, Receipt{}, fmt.Errorf("%w: %v", ErrUnavailable, err)
}

// publishSoon publishes, and repeats that while the backend is busy.
func (l *Log) publishSoon(ctx context.Context, p Publication) (receipt Receipt, err error) {
	for try := range maxTries {
		if err := pause(ctx, try); err != nil {
			return Receipt{}, fmt.Errorf("%w: %v", ErrUnavailable, context.Cause(ctx))
		}
		if receipt, err = l.backend.Publish(ctx, p); !errors.Is(err, ErrBusy) {
			return receipt, err
		}
	}
	return Receipt{}, fmt.Errorf("%w: %v", ErrUnavailable, err)
}

// single returns the publication of one message of an append, without expectation.
func single(p *appending, i int) Publication {
	return Publication{Writes: []Write{{Subject: p.name, Messages: p.msgs[i : i+1]}}}
}

// publishEvents stores the events of all parts: first the first event of each, in the order of the parts, then the
// others of several parts at a time.
func (u *batch) publishEvents() ([]Ack, error) {
	acks, errs := make([]Ack, len(u.parts)), make([]error, len(u.parts))
	var leading []Publication
	var of []int
	for i, p := range u.parts {
		if len(p.msgs) > 0 {
			leading, of = append(leading, single(p, 0)), append(of, i)
		}
	}
	receipts, err := u.l.publishEach(u.parts[0].era.ctx, leading)
	if err != nil {
		return nil, err
	}
	var storing sync.WaitGroup
	for n, i := range of {
		acks[i] = Ack{First: receipts[n].Last, Last: receipts[n].Last, Durability: u.l.config.Host.Durability}
		storing.Go(func() { errs[i] = u.l.chain(u.parts[i], &acks[i]) })
	}
	storing.Wait()
	return acks, errors.Join(errs...)
}

// publishEach stores publications of one message each in their order.
func (l *Log) publishEach(ctx context.Context, list []Publication) ([]Receipt, error) {
	if b, ok := l.backend.(pipelined); ok {
		return b.PublishEach(ctx, list)
	}
	receipts := make([]Receipt, len(list))
	for i, p := range list {
		var err error
		if receipts[i], err = l.publishSoon(ctx, p); err != nil {
			return nil, err
		}
	}
	return receipts, nil
}

// chain stores the events of one part behind its first, one after the other. It runs in the part's turn, after its
// expectation was checked.
func (l *Log) chain(p *appending, ack *Ack) error {
	known := p.exact
	for i := range p.msgs {
		if i > 0 {
			receipt, err := l.publishSoon(p.era.ctx, single(p, i))
			if err != nil {
				return err
			}
			ack.Last = receipt.Last
		}
		one := *p
		one.events, one.size = p.events[i:i+1], p.size/len(p.msgs)
		l.remember(&one, known, Ack{First: ack.Last, Last: ack.Last})
		l.note(&one, *ack)
		known.At = ack.Last
	}
	return nil
}

// insist stores the missing events of a batch that may be partly stored, until all are stored or the log is closed:
// then the next owner does it.
func (u *batch) insist(record *appending, h *hold) ([]Ack, error) {
	l := u.l
	for try := 1; ; try++ {
		if l.closing() || pause(l.life, min(try, 6)) != nil {
			return nil, fmt.Errorf("append to %s: %w: the log was closed meanwhile", nameOf(u.parts), ErrUnknown)
		}
		e := l.era() // first: the offset below changes when an era begins
		u.begin(e)
		record.era = e
		before := l.commit.before(h)
		if _, err := l.complete(e.ctx, record, before, l.publishSoon); err != nil {
			continue
		}
		acks, err := make([]Ack, len(u.parts)), error(nil)
		for i, p := range u.parts {
			if len(p.msgs) == 0 {
				continue
			}
			l.ids.of(p.sub).whole = false
			l.lasts.drop(p.name)
			if acks[i], err = l.complete(e.ctx, p, before, l.publishSoon); err != nil {
				break
			}
		}
		if err == nil {
			return acks, nil
		}
	}
}

// publishing is a function that stores one message.
type publishing func(context.Context, Publication) (Receipt, error)

// complete stores the events of an append that are not in the log behind an offset. Nobody else writes to its subject.
func (l *Log) complete(ctx context.Context, p *appending, after events.Offset, publish publishing) (Ack, error) {
	there := make(map[string]events.Offset, len(p.msgs))
	last := after
	if newest, err := l.backend.Last(ctx, p.name); err == nil {
		last = newest.Offset
	} else if !isNotFound(err) {
		return Ack{}, err
	}
	if last > after {
		for rec, err := range l.readPast(ctx, events.Range{Subject: p.sub, After: after}, last) {
			if err != nil {
				return Ack{}, err
			}
			there[rec.MsgID()] = rec.Offset
		}
	}
	ack := Ack{Durability: l.config.Host.Durability}
	for i, m := range p.msgs {
		at := there[m.ID]
		if at == 0 {
			receipt, err := publish(ctx, single(p, i))
			if err != nil {
				return Ack{}, err
			}
			at = receipt.Last
		}
		if i == 0 {
			ack.First = at
		}
		ack.Last = max(ack.Last, at)
	}
	if l.commit != nil {
		l.note(p, ack)
	}
	return ack, nil
}

// closing reports whether Close was called.
func (l *Log) closing() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.shut
}
