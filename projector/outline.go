package projector

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/snapshot"
)

// Outline is a session at a position that reads turns on request. If the session's snapshots are up to date, the cost
// to open it and to read its last turns does not depend on its length. It is safe for concurrent use.
type Outline struct {
	Past // the threads at the position
	live []Interval
}

func newOutline(l *Loader, s *state, used []snapshot.Meta) *Outline {
	return &Outline{Past{l, s, used, s.offset()}, sure(s.history.Live(s.offset()))} // only older lists need a page
}

// Outline opens a session as of an offset, 0 for the head. If the session has no record up to there, Outline returns
// ErrNotFound. If records cannot be read, it returns the outline with a *HoleError.
func (l *Loader) Outline(ctx context.Context, sub events.Subject, at events.Offset) (o *Outline, err error) {
	err = l.load(ctx, sub, l.bounded(at), nil, func(ld *loading) error {
		o = newOutline(l, ld.s, ld.used)
		return nil
	})
	if err == nil {
		err = HoleOf(sub, o.s.damaged)
	}
	return o, err
}

// Peek opens a session in its current state. A session without records is empty, not an error.
func (l *Loader) Peek(ctx context.Context, sub events.Subject) (*Outline, error) {
	o, err := l.Outline(ctx, sub, 0)
	if errors.Is(err, ErrNotFound) {
		return newOutline(l, newState(sub, l.chunkSizes()), nil), nil
	}
	return o, err
}

// Session reads the session with all of its turns and costs. The caller must not change what it shares with the
// outline, such as the ledger's slices.
func (o *Outline) Session(ctx context.Context) (s *Session, err error) {
	err = o.with(ctx, func(st *state) error {
		s, err = (&loading{Loader: o.l, sub: st.subject, s: st}).complete(ctx)
		return err
	})
	return s, err
}

// At returns the last record at or below an offset, or 0.
func (o *Outline) At(ctx context.Context, at events.Offset) (there events.Offset, err error) {
	err = o.with(ctx, func(s *state) error {
		there, err = s.reading(ctx, o.l).history.At(at)
		return err
	})
	return there, err
}

// Before returns the last record below an offset, or 0.
func (o *Outline) Before(ctx context.Context, at events.Offset) (events.Offset, error) {
	if at == 0 {
		return 0, nil
	}
	return o.At(ctx, at-1)
}

// Count returns the number of the session's own records at or below an offset. It includes lost records that the
// outline knows. events.Range takes the result as the number of records before the range.
func (o *Outline) Count(ctx context.Context, at events.Offset) (n int, err error) {
	err = o.with(ctx, func(s *state) error {
		h := s.reading(ctx, o.l).history
		n, err = h.numberAt(at)
		n = max(0, n+1-h.inherited())
		return err
	})
	for _, lost := range o.s.damaged {
		if lost <= at {
			n++
		}
	}
	return n, err
}

// IsLive reports whether the session's own record at an offset is on the branch that led to the last one: see InEffect.
func (o *Outline) IsLive(at events.Offset) bool {
	n, _ := slices.BinarySearchFunc(o.live, at, func(i Interval, at events.Offset) int { return cmp.Compare(i.To, at) })
	return n < len(o.live) && o.live[n].From <= at
}

// Subject returns the session's subject.
func (o *Outline) Subject() events.Subject { return o.s.subject }

// First returns the offset of the session's own first record, or 0 if no record can be read.
func (o *Outline) First() events.Offset { return o.s.history.First() }

// Stale lists the stale records: their producers had read records that were rewound meanwhile.
func (o *Outline) Stale() []events.Offset { return o.s.history.Stale() }

// Damaged lists the records that could not be read. They are not folded.
func (o *Outline) Damaged() []events.Offset { return slices.Clone(o.s.damaged) }

// Ledger returns the session's ledger without its costs. The caller must not change it.
func (o *Outline) Ledger() *Ledger { return o.s.ledger }

// OnlyGrew reports whether a thread consists of all turns that were ever added to it, in that order. Then every earlier
// state of the thread is a prefix of it. For a session with inherited records, OnlyGrew returns false.
func (o *Outline) OnlyGrew(thread string) bool {
	th, own := o.s.strands[thread], o.s.own()
	if th == nil || len(o.s.sources) > 1 {
		return false
	}
	n := 0
	for _, sp := range th.spans {
		if sp.from != n {
			return false
		}
		n = sp.to
	}
	return n == own.next[thread]
}

// turns reads turns of a thread from the chunks that hold them.
func (s *state) turns(ctx context.Context, l *Loader, thread string, from, to int) ([]Turn, error) {
	th := s.strands[thread]
	if th == nil || from >= to {
		return nil, nil
	}
	var list []Turn
	for _, sp := range th.between(max(from, 0), to) {
		t := s.sources[sp.source]
		for n := sp.from; n < sp.to; {
			b, err := t.bringing(ctx, l, thread, n)
			if err != nil {
				return nil, err
			}
			for _, turn := range b.Turns[n-b.First : min(sp.to-b.First, len(b.Turns))] {
				list = append(list, sp.pin.of(turn.clone()))
				n++
			}
		}
	}
	return list, nil
}

// bringing returns the turns of the chunk that holds turn n of a thread.
func (t *table) bringing(ctx context.Context, l *Loader, thread string, n int) (*threadTurns, error) {
	if b := t.open.turns[thread]; b != nil && n >= b.First {
		if n >= b.First+len(b.Turns) {
			return nil, lostf("no chunk of %s has turn %d of thread %q", t.subject.Name(), n, thread)
		}
		return b, nil
	}
	e, err := t.find(ctx, l, hasTurn(thread, n))
	if err != nil {
		return nil, err
	}
	c, err := l.chunk(ctx, t.subject, e)
	if err != nil {
		return nil, err
	}
	return c.turns[thread], nil
}

// Resolve returns the offset of a position of a session that was opened at its head. The offset is that of a record of
// the session or of an inherited one. For start it is 0. For a time or an event id, Resolve searches all records.
func (o *Outline) Resolve(ctx context.Context, p Position) (at events.Offset, err error) {
	switch p.kind {
	case atTime, atAgo, atEvent:
		s, err := o.l.Session(ctx, o.s.subject, o.Offset())
		if err = Tolerate(err); err != nil {
			return 0, err
		}
		return o.l.positionOf(ctx, s, p)
	}
	var missing *PositionError // a valid answer, not a failed load
	err = o.with(ctx, func(s *state) (err error) {
		at, err = resolver{s.subject, s.reading(ctx, o.l).history, sortedNames(s.strands), o.Len, func(thread string, from, to int) ([]Turn, error) {
			return s.turns(ctx, o.l, thread, from, to)
		}}.resolve(p)
		var none bool
		if missing, none = errors.AsType[*PositionError](err); none {
			return nil
		}
		return err
	})
	if err == nil && missing != nil {
		err = missing
	}
	return at, err
}
