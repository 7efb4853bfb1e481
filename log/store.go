package log

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tallylog/tally/events"
)

// maxTries bounds how often an append decides anew because somebody else wrote to
// its subject, or because the backend was busy.
const maxTries = 64

// store decides, publishes, and decides again if the subject moved meanwhile. It
// runs in its turn: no other append of this Log to the subject is under way.
func (l *Log) store(ctx context.Context, p *appending) (Ack, error) {
	var claimed Exactly // what the backend said last about the subject
	var tried Exactly
	var last error
	for try := range maxTries {
		if err := pause(ctx, try); err != nil {
			return Ack{}, fmt.Errorf("log: append %s: not written: %w", p.name, err)
		}
		segment := l.segment(p)
		exact, ack, err := l.decide(ctx, p)
		if ack != nil {
			return *ack, nil
		}
		if err != nil {
			return Ack{}, err
		}
		if p.look && tried == exact && claimed.Set {
			lost, err := l.cannotRead(ctx, claimed.At)
			if err != nil {
				return Ack{}, fmt.Errorf("log: append %s: not written: %w", p.name, err)
			}
			if !lost {
				continue // who was asked is behind who refuses
			}
			exact = claimed // the backend counts from a record that nobody can see
		}
		receipt, err := l.backend.Publish(ctx, Publication{Subject: p.name, Messages: p.msgs, Expect: exact, Segment: segment})
		last = err
		switch conflict, _ := errors.AsType[*ConflictError](err); {
		case err == nil && receipt.Duplicate:
			return l.confirm(ctx, p, receipt)
		case err == nil:
			first := receipt.Last - events.Offset(len(p.msgs)-1)
			l.ids.stored(p, exact, first, l.alone())
			return Ack{First: first, Last: receipt.Last, Durability: l.config.Durability}, nil
		case conflict != nil:
			p.tail, p.behind = true, 0
			l.ids.of(p.sub).whole = false
			tried, claimed = exact, Exactly{Set: true, At: conflict.Have}
		case errors.Is(err, ErrDuplicate):
			p.look = true
		case errors.Is(err, ErrBusy):
		case errors.Is(err, ErrConflict):
			p.tail, p.behind, tried = true, 0, Exactly{}
		default:
			if errors.Is(err, ErrUnknown) {
				l.doubtful.Store(true)
			}
			return Ack{}, fmt.Errorf("log: append %s: %w", p.name, err)
		}
	}
	if errors.Is(last, errInProcess) {
		l.doubtful.Store(true)
		return Ack{}, fmt.Errorf("log: append %s: %w: it was sent before, and no quorum has it yet", p.name, ErrUnknown)
	}
	return Ack{}, fmt.Errorf("log: append %s: %w: too much happens there, nothing was written after %d tries", p.name, ErrUnavailable, maxTries)
}

// cannotRead reports whether a record that the backend counts is lost. One that is
// only not there yet, for those who answer, is not.
func (l *Log) cannotRead(ctx context.Context, at events.Offset) (bool, error) {
	_, err := l.record(ctx, at)
	if isDamage(err) {
		return true, nil
	}
	if isNotFound(err) {
		err = nil
	}
	return false, err
}

// segment notes whether the backend can still know the append's ids by itself, and
// gives the segment that this is said of. Producers' clocks may be ahead of this
// one's: an id counts as older than it says.
func (l *Log) segment(p *appending) int {
	b, ok := l.backend.(Segmented)
	if !ok || p.youngUntil.IsZero() || p.look {
		return 0 // looked up anyway, or never stored before
	}
	n, begun := b.Segment()
	if made := p.youngUntil.Add(-youngID); !begun.IsZero() && made.Before(begun.Add(youngID)) {
		p.look = true
		return 0
	}
	return n
}

// pause waits before a repeated try, longer each time and by chance, so that two
// writers do not stay in step.
func pause(ctx context.Context, try int) error {
	if try == 0 {
		return ctx.Err()
	}
	most := min(time.Millisecond<<min(try, 6), 50*time.Millisecond)
	select {
	case <-time.After(rand.N(most)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// decide says what to publish against: nothing, or the exact last offset up to
// which the subject was looked at, so that looking cannot race. It returns an Ack
// instead if the events are there.
func (l *Log) decide(ctx context.Context, p *appending) (Exactly, *Ack, error) {
	if !p.youngUntil.IsZero() && l.config.Now().After(p.youngUntil) {
		p.look = true
	}
	if !p.look && !p.tail && p.expect.kind != expectSince {
		return Exactly{Set: p.expect.kind == expectAt, At: p.expect.at}, nil, nil
	}
	s, err := l.survey(ctx, p)
	if err != nil {
		return Exactly{}, nil, err
	}
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
		return Exactly{}, nil, &events.InvalidError{Field: "expect", Reason: p.guardedType() + " is a decision about what is there: it needs At or Since unless it begins the subject"}
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

// survey is what an append learnt about its subject.
type survey struct {
	last  events.Offset // of the subject
	clash bool          // an event came that Since excludes
	found []place       // by event
}

// place is where an identity is; the zero place is nowhere.
type place struct {
	at   events.Offset
	same bool // with the same type and data
}

func (l *Log) survey(ctx context.Context, p *appending) (survey, error) {
	s := survey{found: make([]place, len(p.events))}
	if !p.look {
		return s, l.surveyTail(ctx, p, &s, 0, true)
	}
	last, err := l.lookUp(ctx, p, s.found)
	if err != nil {
		return s, err
	}
	s.last = last
	if p.expect.kind == expectSince && last > p.expect.at {
		err = l.surveyTail(ctx, p, &s, last, false)
	}
	return s, err
}

// surveyTail reads what came to the subject after the expectation, up to the head
// if upto is 0.
func (l *Log) surveyTail(ctx context.Context, p *appending, s *survey, upto events.Offset, ids bool) error {
	if upto == 0 {
		newest, err := l.backend.Last(ctx, p.name)
		if err != nil && !isNotFound(err) {
			return fmt.Errorf("log: append %s: %w", p.name, err)
		}
		s.last = newest.Offset
		if newest.Offset <= p.expect.at {
			return nil
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
			s.found[i] = place{at: rec.Offset, same: sameEvent(rec.Event, p.events[i])}
		}
	}
	return nil
}

// already answers an append of which at least one event is in the log.
func (l *Log) already(p *appending, s survey) (*Ack, error) {
	ack := Ack{Duplicate: true, Durability: l.config.Durability}
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

// confirm answers an append that the backend knows already, by its id alone.
func (l *Log) confirm(ctx context.Context, p *appending, r Receipt) (Ack, error) {
	rec, err := l.record(ctx, r.Last)
	if err != nil {
		return Ack{}, err
	}
	if !sameEvent(rec.Event, p.events[0]) {
		return Ack{}, otherEvent(p.events[0], r.Last)
	}
	return Ack{First: r.Last, Last: r.Last, Durability: l.config.Durability, Duplicate: true}, nil
}

// sameEvent compares what an identity stands for: its type and its data, or where
// those are.
func sameEvent(a, b events.Event) bool {
	return a.Type == b.Type && bytes.Equal(a.Data, b.Data) && a.Extensions[events.ExtDataRef] == b.Extensions[events.ExtDataRef]
}

func otherEvent(e events.Event, at events.Offset) error {
	return &events.InvalidError{Field: "id", Reason: fmt.Sprintf("%q is already that of another event, at %v", e.ID, at)}
}

func isDamage(err error) bool {
	_, ok := errors.AsType[*events.DamageError](err)
	return ok
}
