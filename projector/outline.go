package projector

import (
	"context"
	"errors"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/snapshot"
)

// Outline is a session at a position whose turns are read when they are asked for.
// To open one and to read the last turns of a session costs the same whatever its
// length, if its snapshots are up to date. It is safe for concurrent use.
type Outline struct {
	l    *Loader
	s    *state
	used []snapshot.Meta // heads that s was made with
}

// Outline opens a session as of an offset, 0 for the head. A session without a record
// up to there is ErrNotFound. One of which records cannot be read comes with a *HoleError.
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

// Peek opens a session as it is now. One without records is there, and empty.
func (l *Loader) Peek(ctx context.Context, sub events.Subject) (*Outline, error) {
	o, err := l.Outline(ctx, sub, 0)
	if errors.Is(err, ErrNotFound) {
		return &Outline{l: l, s: newState(sub, l.chunkSizes())}, nil
	}
	return o, err
}

// Session reads the session with all of its turns and costs. What it shares with the
// outline is not to be altered.
func (o *Outline) Session(ctx context.Context) (s *Session, err error) {
	err = o.with(ctx, func(st *state) error {
		s, err = (&loading{Loader: o.l, sub: st.subject, s: st}).complete(ctx)
		return err
	})
	return s, err
}

// At returns the last record at or below an offset, 0 if there is none.
func (o *Outline) At(ctx context.Context, at events.Offset) (there events.Offset, err error) {
	err = o.with(ctx, func(s *state) error {
		there, err = o.history(ctx, s).At(at)
		return err
	})
	return there, err
}

// Before returns the last record below an offset, 0 if there is none.
func (o *Outline) Before(ctx context.Context, at events.Offset) (events.Offset, error) {
	if at == 0 {
		return 0, nil
	}
	return o.At(ctx, at-1)
}

// Count returns how many of the session's own records are at or below an offset, the lost ones that
// the outline knows included: events.Range takes it as Seen.
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

// history returns a timeline that reads what is stored of it with the caller's context.
func (o *Outline) history(ctx context.Context, s *state) *Timeline {
	t := *s.history
	t.numbers = nil // which a copy may make while others read
	t.older = &pager{pages: &chunkPages{ctx, o.l, s}}
	return &t
}

// Subject names the session.
func (o *Outline) Subject() events.Subject { return o.s.subject }

// Offset is the offset of the session's last record, 0 if none can be read.
func (o *Outline) Offset() events.Offset { return o.s.offset() }

// First is the offset of the session's own first record, 0 if none can be read.
func (o *Outline) First() events.Offset { return o.s.history.First() }

// Late lists the records whose producer had seen what was rewound meanwhile.
func (o *Outline) Late() []events.Offset { return o.s.history.Late() }

// Damaged lists the records that could not be read and so are not folded.
func (o *Outline) Damaged() []events.Offset { return slices.Clone(o.s.damaged) }

// Ledger is the session's ledger without its costs. It is not to be altered.
func (o *Outline) Ledger() *Ledger { return o.s.ledger }

// Names lists the threads: main first, the others in byte order.
func (o *Outline) Names() []string { return sortedNames(o.s.strands) }

// Len is the number of turns of a thread, 0 if there is none.
func (o *Outline) Len(thread string) int {
	if th := o.s.strands[thread]; th != nil {
		return th.len()
	}
	return 0
}

// OnlyGrew reports whether a thread is all that it was ever brought, in that order: then it
// began like this after every earlier record that had it. Of what was inherited that is not
// known, and reported false.
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

// Meta is what is said of a thread as a whole, nil if nothing is.
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

// Turns reads the turns of a thread from one number, counted from 0, up to another:
// those of them that there are. What is lost of the snapshots is read from the log.
func (o *Outline) Turns(ctx context.Context, thread string, from, to int) ([]Turn, error) {
	var turns []Turn
	err := o.with(ctx, func(s *state) (err error) {
		turns, err = s.turns(ctx, o.l, thread, from, to)
		return err
	})
	return turns, err
}

// with reads from the state. If a part of the snapshots is lost, it does so again from
// one that was folded without them.
func (o *Outline) with(ctx context.Context, read func(*state) error) error {
	err := read(o.s)
	gone, ok := errors.AsType[*lostError](err)
	if !ok {
		return err
	}
	var useless []part
	for _, m := range o.used {
		o.l.discarded(ctx, m, gone)
		useless = append(useless, partOf(m))
	}
	return o.l.loadWithout(ctx, o.s.subject, o.Offset(), nil, useless, func(ld *loading) error { return read(ld.s) })
}

// turns reads turns of a thread from the chunks that have them.
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

// bringing returns the turns of the chunk that brought turn n of a thread.
func (t *table) bringing(ctx context.Context, l *Loader, thread string, n int) (*brought, error) {
	if b := t.open.turns[thread]; b != nil && n >= b.First {
		if n >= b.First+len(b.Turns) {
			return nil, lost("thread %q of %s was brought no turn %d", thread, t.subject, n)
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

// Resolve returns the offset that a position names, as Loader.Resolve does. A time, or
// the id of an event, is looked for in all records.
func (o *Outline) Resolve(ctx context.Context, p Position) (at events.Offset, err error) {
	switch p.kind {
	case atTime, atAgo, atEvent:
		s, err := o.l.Session(ctx, o.s.subject, o.Offset())
		if err != nil {
			return 0, err
		}
		return o.l.Resolve(ctx, s, p)
	}
	var missing *PositionError // the answer, not a fault of the load
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
