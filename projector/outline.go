package projector

import (
	"context"
	"errors"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/snapshot"
)

// Outline is a session at a position that reads turns on request. If the session's snapshots are up to date, the cost
// to open it and to read its last turns does not depend on its length. It is safe for concurrent use.
type Outline struct {
	l    *Loader
	s    *state
	used []snapshot.Meta // heads that s was made from
}

// Outline opens a session as of an offset, 0 for the head. If the session has no record up to there, Outline returns
// ErrNotFound. If records cannot be read, it returns the outline with a *HoleError.
func (l *Loader) Outline(ctx context.Context, sub events.Subject, at events.Offset) (o *Outline, err error) {
	err = l.load(ctx, sub, l.bounded(at), nil, func(ld *loading) error {
		o = &Outline{l, ld.s, ld.used}
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
		return &Outline{l: l, s: newState(sub, l.chunkSizes())}, nil
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
		there, err = o.history(ctx, s).At(at)
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
		h := o.history(ctx, s)
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

// IsLive reports whether the record at an offset is in effect after the last one.
func (o *Outline) IsLive(ctx context.Context, at events.Offset) (live bool, err error) {
	err = o.with(ctx, func(s *state) error {
		live, err = o.history(ctx, s).IsLive(at)
		return err
	})
	return live, err
}

// history returns a timeline that reads stored records with the caller's context.
func (o *Outline) history(ctx context.Context, s *state) *Timeline {
	t := *s.history
	t.numbers = nil // the copy may build its own while other goroutines read
	t.older = &pager{pages: &chunkPages{ctx, o.l, s}}
	return &t
}

// Subject returns the session's subject.
func (o *Outline) Subject() events.Subject { return o.s.subject }

// Offset returns the offset of the session's last record, or 0 if no record can be read.
func (o *Outline) Offset() events.Offset { return o.s.offset() }

// First returns the offset of the session's own first record, or 0 if no record can be read.
func (o *Outline) First() events.Offset { return o.s.history.First() }

// Stale lists the stale records: their producers had read records that were rewound meanwhile.
func (o *Outline) Stale() []events.Offset { return o.s.history.Stale() }

// Damaged lists the records that could not be read. They are not folded.
func (o *Outline) Damaged() []events.Offset { return slices.Clone(o.s.damaged) }

// Ledger returns the session's ledger without its costs. The caller must not change it.
func (o *Outline) Ledger() *Ledger { return o.s.ledger }

// Names lists the threads: main first, the others in byte order.
func (o *Outline) Names() []string { return sortedNames(o.s.strands) }

// Len returns the number of turns of a thread, 0 if it does not exist.
func (o *Outline) Len(thread string) int {
	if th := o.s.strands[thread]; th != nil {
		return th.len()
	}
	return 0
}

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

// Meta returns the metadata of a thread, or nil.
func (o *Outline) Meta(thread string) events.Raw {
	if th := o.s.strands[thread]; th != nil {
		return th.meta
	}
	return nil
}

// Last reads the last n turns of a thread, or all if there are fewer.
func (o *Outline) Last(ctx context.Context, thread string, n int) ([]Turn, error) {
	return o.Turns(ctx, thread, o.Len(thread)-n, o.Len(thread))
}

// Turns reads the turns of a thread with from <= number < to, counted from 0. Numbers outside the thread are ignored.
// If a part of the snapshots is lost, Turns reads the log instead.
func (o *Outline) Turns(ctx context.Context, thread string, from, to int) ([]Turn, error) {
	var turns []Turn
	err := o.with(ctx, func(s *state) (err error) {
		turns, err = s.turns(ctx, o.l, thread, from, to)
		return err
	})
	return turns, err
}

// with calls read with the state. If a part of the snapshots is lost, it folds a state without them and calls read
// again.
func (o *Outline) with(ctx context.Context, read func(*state) error) error {
	err := read(o.s)
	gone, ok := errors.AsType[*lostError](err)
	if !ok {
		return err
	}
	var useless []partID
	for _, m := range o.used {
		o.l.discarded(ctx, m, gone)
		useless = append(useless, partOf(m))
	}
	return o.l.loadWithout(ctx, o.s.subject, o.Offset(), nil, useless, func(ld *loading) error { return read(ld.s) })
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

// Resolve returns the offset of a position, like Loader.Resolve. For a time or an event id it searches all records.
func (o *Outline) Resolve(ctx context.Context, p Position) (at events.Offset, err error) {
	switch p.kind {
	case atTime, atAgo, atEvent:
		s, err := o.l.Session(ctx, o.s.subject, o.Offset())
		if err != nil {
			return 0, err
		}
		return o.l.Resolve(ctx, s, p)
	}
	var missing *PositionError // a valid answer, not a failed load
	err = o.with(ctx, func(s *state) (err error) {
		at, err = resolver{s.subject, o.history(ctx, s), sortedNames(s.strands), o.Len, func(thread string, from, to int) ([]Turn, error) {
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
