package log

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tallylog/tally/events"
)

// maxTries bounds how often an append decides again because another writer wrote to its subject, or because the backend
// was busy.
const maxTries = 64

// store decides, publishes, and decides again if a subject moved meanwhile. It runs in the turn of all parts: no other
// append of this Log to their subjects is under way. It returns an Ack for each part; the Ack of a guard is empty.
func (l *Log) store(ctx context.Context, parts ...*appending) ([]Ack, error) {
	var last error
	for try := range maxTries {
		if err := pause(ctx, try); err != nil {
			return nil, fmt.Errorf("append to %s: not written: %w", nameOf(parts), err)
		}
		pub, acks, err := l.decideAll(ctx, parts)
		if acks != nil || err != nil {
			return acks, err
		}
		if pub.Writes == nil {
			continue // the server that answered is behind the one that refused
		}
		receipt, err := l.publish(ctx, pub, parts)
		last = err
		switch conflict, _ := errors.AsType[*ConflictError](err); {
		case err == nil && receipt.Duplicate && len(parts) == 1:
			ack, err := l.confirm(ctx, parts[0], receipt)
			return []Ack{ack}, err
		case err == nil && !receipt.Duplicate:
			return l.stored(parts, receipt), nil
		case conflict != nil && len(parts) == 1:
			l.moved(parts[0])
			parts[0].tried, parts[0].claimed = pub.Writes[0].Expect, Exactly{Set: true, At: conflict.Have}
		case err == nil || errors.Is(err, ErrDuplicate):
			for _, p := range parts {
				p.look = true
			}
		case errors.Is(err, errSentAgain):
			if acks := l.storedFirst(ctx, parts); acks != nil {
				return acks, nil
			}
			l.doubtful.Store(true)
			return nil, fmt.Errorf("append to %s: %w", nameOf(parts), err)
		case errors.Is(err, ErrBusy):
		case errors.Is(err, ErrConflict):
			for _, p := range parts {
				l.moved(p)
			}
		default:
			if errors.Is(err, ErrUnknown) {
				l.doubtful.Store(true)
			}
			return nil, fmt.Errorf("append to %s: %w", nameOf(parts), err)
		}
	}
	if errors.Is(last, errInProcess) {
		l.doubtful.Store(true)
		return nil, fmt.Errorf("append to %s: %w: it was sent, but no quorum of the cluster has stored it yet", nameOf(parts), ErrUnknown)
	}
	return nil, fmt.Errorf("append to %s: %w: not written after %d tries: other writers were faster, or the server was busy", nameOf(parts), ErrUnavailable, maxTries)
}

// publish publishes once. While a unit is being stored, the watermark stays below it: a reader that meets one of its
// records asks for the sync of that record alone. The answer is awaited even if ctx ends, because only then it is known
// where the unit ends.
func (l *Log) publish(ctx context.Context, pub Publication, parts []*appending) (Receipt, error) {
	if len(parts) == 1 || l.commit == nil {
		return l.backend.Publish(ctx, pub)
	}
	h, e := l.commit.hold(), parts[0].era
	defer l.commit.letGo(h)
	receipt, err := l.backend.Publish(e.ctx, pub)
	if err == nil {
		l.commit.note(receipt.Last, e)
	}
	return receipt, err
}

// storedFirst returns the Acks of an append that was sent twice if the log has its events, and nil if it does not have
// them, or cannot tell.
func (l *Log) storedFirst(ctx context.Context, parts []*appending) []Ack {
	for _, p := range parts {
		p.look = true
	}
	_, acks, err := l.decideAll(ctx, parts)
	if err != nil {
		return nil
	}
	return acks
}

// nameOf returns a name of an append for error texts.
func nameOf(parts []*appending) string {
	if len(parts) == 1 {
		return parts[0].sub.Name()
	}
	return fmt.Sprintf("%s and %d more", parts[0].sub.Name(), len(parts)-1)
}

// nameOfNATS returns a name for error texts of a subject in NATS form.
func nameOfNATS(subject string) string {
	if sub, err := events.ParseNATS(subject); err == nil {
		return sub.Name()
	}
	return subject
}

// moved makes the next attempt look at the subject again: another writer wrote to it, or its last record is gone.
func (l *Log) moved(p *appending) {
	p.tail, p.behind, p.tried = true, 0, Exactly{}
	l.ids.of(p.sub).whole = false
	l.lasts.drop(p.name)
}

// stored returns the Acks of the parts of one publication, and notes them.
func (l *Log) stored(parts []*appending, r Receipt) []Ack {
	n := 0
	for _, p := range parts {
		n += len(p.msgs)
	}
	acks, at := make([]Ack, len(parts)), r.Last-events.Offset(n)
	for i, p := range parts {
		if len(p.msgs) == 0 {
			continue
		}
		acks[i] = Ack{First: at + 1, Last: at + events.Offset(len(p.msgs)), Durability: l.config.Host.Durability}
		at = acks[i].Last
		l.remember(p, p.exact, acks[i])
	}
	return acks
}

// remember notes what an append stored, unless the log has recovered since.
func (l *Log) remember(p *appending, exact Exactly, ack Ack) {
	if !p.era.isOver() {
		l.ids.stored(p, exact, ack.First, l.alone())
	}
	l.lasts.set(p.name, ack.Last, p.era)
}

// cannotRead reports whether a record that the backend counts is lost. A record that the answering server does not have
// yet is not lost.
func (l *Log) cannotRead(ctx context.Context, at events.Offset) (bool, error) {
	_, err := l.record(ctx, at)
	if events.IsDamage(err) {
		return true, nil
	}
	if isNotFound(err) {
		err = nil
	}
	return false, err
}

// lostLast returns the lost record because of which the backend refused an append that expects the last readable
// record, or 0. A backend that cannot read its last record either may name 0 instead of it.
func (l *Log) lostLast(ctx context.Context, p *appending) (events.Offset, error) {
	if p.claimed.At >= p.exact.At {
		if lost, err := l.cannotRead(ctx, p.claimed.At); !lost || err != nil {
			return 0, err
		}
		return p.claimed.At, nil
	}
	err := l.unreadable(ctx, p.sub)
	if damage, is := errors.AsType[*events.DamageError](err); is {
		return damage.Offset, nil
	}
	return 0, err
}

// segment returns the segment in which the backend can still know the append's ids by itself, and sets p.look if it
// cannot. The producer's clock may be ahead of this one, so an id counts as older than its time.
func (l *Log) segment(p *appending) int {
	b, ok := l.backend.(Segmented)
	if !ok || p.youngUntil.IsZero() || p.look {
		return 0 // looked up anyway, or never stored before
	}
	n, begun := b.Segment()
	if made := p.youngUntil.Add(-youngID); !begun.IsZero() && !made.After(begun.Add(youngID)) {
		p.look = true
		return 0
	}
	return n
}

// pause waits before a repeated attempt, longer each time and randomly, so that two writers do not stay in step.
func pause(ctx context.Context, try int) error {
	if try == 0 {
		return ctx.Err()
	}
	bound := min(time.Millisecond<<min(try, 6), 50*time.Millisecond)
	select {
	case <-time.After(rand.N(bound)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// decideAll decides for each part. It returns Acks instead if the log has the events. It returns no writes if the
// backend does not show yet why it refused.
func (l *Log) decideAll(ctx context.Context, parts []*appending) (pub Publication, acks []Ack, err error) {
	for {
		var refused error
		pub, acks, refused, err = l.decideEach(ctx, parts)
		if acks == nil && refused == nil || err != nil || len(parts) == 1 {
			return pub, acks, err
		}
		if again := lookCloser(parts); again {
			continue
		}
		if acks == nil || refused != nil && allThere(parts, acks) != nil {
			return pub, nil, refused
		}
		return pub, acks, allThere(parts, acks)
	}
}

// decideEach is decideAll for what is known of each part. refused is the conflict of a guard. It counts only if the log
// does not have the events: when they were stored, the guard's subject was as expected.
func (l *Log) decideEach(ctx context.Context, parts []*appending) (pub Publication, acks []Ack, refused, err error) {
	pub.Writes = make([]Write, 0, len(parts))
	for i, p := range parts {
		decided := len(p.msgs) == 0 && l.config.Host.Owner // nobody else writes, so the result stays valid
		p.tail = p.tail || decided
		if n := l.segment(p); pub.Segment == 0 {
			pub.Segment = n
		}
		var ack *Ack
		p.exact, ack, err = l.decide(ctx, p)
		if err != nil && len(p.msgs) == 0 && errors.Is(err, ErrConflict) {
			refused = cmp.Or(refused, err)
			continue
		}
		if err != nil {
			return pub, nil, nil, err
		}
		if ack != nil {
			if acks == nil {
				acks = make([]Ack, len(parts))
			}
			acks[i] = *ack
		}
		if p.look && p.tried == p.exact && p.claimed.Set {
			lost, err := l.lostLast(ctx, p)
			if err != nil {
				return pub, nil, nil, fmt.Errorf("append to %s: not written: %w", p.sub.Name(), err)
			}
			if lost == 0 {
				return Publication{}, nil, nil, nil
			}
			if p.decided {
				return pub, nil, nil, l.notWritten(p, lost)
			}
			p.exact = p.claimed // the backend counts from an unreadable record
		}
		if !decided {
			pub.Writes = append(pub.Writes, Write{Subject: p.name, Messages: p.msgs, Expect: p.exact})
		}
	}
	return pub, acks, refused, nil
}

// lookCloser makes the parts look for their events that did not yet, and reports whether there were any: the log has
// the events of another part.
func lookCloser(parts []*appending) (again bool) {
	for _, p := range parts {
		if len(p.msgs) > 0 && p.found == nil {
			p.look, again = true, true
		}
	}
	return again
}

// allThere returns a *PartialError if the log has the events of some parts, but not of others.
func allThere(parts []*appending, acks []Ack) error {
	partial := &PartialError{}
	whole := true
	for i, p := range parts {
		switch {
		case len(p.msgs) == 0:
		case acks[i].Last == 0:
			whole = false
		case partial.Have == nil:
			partial.Subject = p.sub
			for n, f := range p.found {
				partial.Have = append(partial.Have, Existing{Index: n, ID: p.events[n].ID, Offset: f.at})
			}
		}
	}
	if whole {
		return nil
	}
	return partial
}

// decide returns the expectation to publish with: none, or the exact last offset up to which the subject was read, so
// that the read cannot race with other writers. It returns an Ack instead if the log has the events.
func (l *Log) decide(ctx context.Context, p *appending) (Exactly, *Ack, error) {
	if !p.youngUntil.IsZero() && !l.config.Now().Before(p.youngUntil) {
		p.look = true
	}
	if err := l.recognise(ctx, p); err != nil {
		return Exactly{}, nil, err
	}
	if !p.look && !p.tail && p.expect.kind != expectSince {
		return Exactly{Set: p.expect.kind == expectAt, At: p.expect.at}, nil, nil
	}
	s, err := l.survey(ctx, p)
	if err != nil {
		return Exactly{}, nil, err
	}
	p.found = s.found
	if ack, err := l.already(p, s); ack != nil || err != nil {
		return Exactly{}, ack, err
	}
	conflict := false
	switch p.expect.kind {
	case expectAt:
		conflict = s.last != p.expect.at
	case expectSince:
		conflict = s.clash
	}
	switch {
	case conflict && p.guarded:
		return Exactly{}, nil, &events.InvalidError{Field: "expect", Reason: "missing: unless it is the first event of its subject, " + p.guardedType() + " needs the last offset that it is based on"}
	case conflict && p.decided && p.expect.at > s.last:
		lost, err := l.cannotRead(ctx, p.expect.at)
		if lost && err == nil {
			err = l.notWritten(p, p.expect.at)
		}
		return Exactly{}, nil, cmp.Or(err, error(&ConflictError{Subject: p.sub, Want: p.expect.at, Have: s.last}))
	case conflict:
		return Exactly{}, nil, &ConflictError{Subject: p.sub, Want: p.expect.at, Have: s.last}
	}
	return Exactly{Set: true, At: s.last}, nil, nil
}

func (p *appending) guardedType() string {
	for _, e := range p.events {
		if events.GuardOf(e.Type) == events.GuardSince {
			return e.Type
		}
	}
	return ""
}

// survey is what an append has learnt about its subject.
type survey struct {
	last  events.Offset // of the subject
	clash bool          // an event came that Since excludes
	found []located     // for each event
}

// located is the offset of an identity; the zero value means not found.
type located struct {
	at   events.Offset
	same bool // with the same type and data
}

func (l *Log) survey(ctx context.Context, p *appending) (survey, error) {
	s := survey{found: make([]located, len(p.events))}
	if !p.look {
		if l.remembers(p, &s) {
			return s, nil
		}
		return s, l.surveyTail(ctx, p, &s, 0, true)
	}
	last, err := l.lookUp(ctx, p, s.found)
	if err != nil {
		return s, err
	}
	s.last = last
	if p.expect.kind != expectSince || last <= p.expect.at {
		return s, nil
	}
	if ids := l.ids.of(p.sub); ids.knows(p.expect.at) && ids.upto == last {
		s.clash = ids.clash(p.expect)
		return s, nil
	}
	return s, l.surveyTail(ctx, p, &s, last, false)
}

// surveyTail reads the records of the subject after the expectation, up to the head if upto is 0.
func (l *Log) surveyTail(ctx context.Context, p *appending, s *survey, upto events.Offset, ids bool) error {
	if upto == 0 {
		var err error
		if s.last, err = l.lastOf(ctx, p.name); err != nil || s.last <= p.expect.at {
			return err
		}
	}
	want := make(map[string]int, len(p.msgs))
	for i, m := range p.msgs {
		want[m.ID] = i
	}
	for rec, err := range l.readPast(ctx, events.Range{Subject: p.sub, After: p.expect.at, Upto: upto}, s.last) {
		if err != nil {
			return err
		}
		s.last = max(s.last, rec.Offset)
		s.clash = s.clash || p.expect.concerns(rec.Type)
		if i, mine := want[rec.MsgID()]; mine && ids {
			s.found[i] = located{at: rec.Offset, same: sameEvent(rec.Event, p.events[i])}
		}
	}
	return nil
}

// already returns the answer to an append of which the log has at least one event.
func (l *Log) already(p *appending, s survey) (*Ack, error) {
	ack := Ack{Duplicate: true, Durability: l.config.Host.Durability}
	var have []Existing
	for i, f := range s.found {
		if f.at == 0 {
			continue
		}
		if !f.same {
			return nil, otherEvent(p.events[i], f.at)
		}
		have = append(have, Existing{Index: i, ID: p.events[i].ID, Offset: f.at})
		if ack.First == 0 || f.at < ack.First {
			ack.First = f.at
		}
		ack.Last = max(ack.Last, f.at)
	}
	switch len(have) {
	case 0:
		return nil, nil
	case len(p.events):
		return &ack, nil
	}
	return nil, &PartialError{Subject: p.sub, Have: have}
}

// confirm returns the answer to an append whose id the backend knows.
func (l *Log) confirm(ctx context.Context, p *appending, r Receipt) (Ack, error) {
	rec, err := l.record(ctx, r.Last)
	if err != nil {
		return Ack{}, err
	}
	if !sameEvent(rec.Event, p.events[0]) {
		return Ack{}, otherEvent(p.events[0], r.Last)
	}
	return Ack{First: r.Last, Last: r.Last, Durability: l.config.Host.Durability, Duplicate: true}, nil
}

// sameEvent compares the type and the data of a stored event and of another one with its identity, or the references to
// the data. An erased event has lost its data: it is the same if the type is.
func sameEvent(stored, e events.Event) bool {
	return stored.Type == e.Type && (stored.Erased() != "" || bytes.Equal(stored.Data, e.Data) && stored.Extensions[events.ExtDataRef] == e.Extensions[events.ExtDataRef])
}

func otherEvent(e events.Event, at events.Offset) error {
	return &events.InvalidError{Field: "id", Reason: fmt.Sprintf("%q is already the id of another event, at %v", e.ID, at)}
}
