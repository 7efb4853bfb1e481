package projector

import (
	"context"
	"errors"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/snapshot"
)

// Past is the threads of a session after one of its records. It reads turns on request, and has no ledger. It is safe
// for concurrent use.
type Past struct {
	l    *Loader
	s    *state          // the session at its head, with the threads after the record
	used []snapshot.Meta // heads that s was made from
	at   events.Offset   // of the record
}

// Back returns the threads after the last record at or below an offset. Before the first record, which may be an
// inherited one, the session has no threads. If records up to there cannot be read, Back returns the threads of the
// others with a *HoleError. The cost does not depend on the session's length, unless a record since then pinned,
// replaced or truncated turns, or set metadata of a thread.
func (o *Outline) Back(ctx context.Context, at events.Offset) (*Past, error) {
	p := &Past{l: o.l, used: o.used}
	err := o.with(ctx, func(s *state) (err error) {
		p.s, p.at, err = s.back(ctx, o.l, at)
		return err
	})
	if err != nil {
		return nil, err
	}
	damaged := slices.DeleteFunc(o.Damaged(), func(lost events.Offset) bool { return lost > at && at < o.at })
	return p, HoleOf(o.s.subject, damaged)
}

// back returns the state with the threads after the last record at or below an offset, and that record's offset.
func (s *state) back(ctx context.Context, l *Loader, at events.Offset) (*state, events.Offset, error) {
	there, threads := events.Offset(0), make(strands)
	reading := s.reading(ctx, l)
	n, err := reading.history.numberAt(at)
	if err == nil && n >= 0 {
		there, err = reading.history.offset(n)
	}
	if err == nil && n >= 0 {
		threads, err = (&loading{Loader: l, sub: s.subject, s: reading}).threadsAt(ctx, n)
	}
	then := *s
	then.strands = threads
	return &then, there, err
}

// reading returns a copy of the state whose history reads stored records with the caller's context.
func (s *state) reading(ctx context.Context, l *Loader) *state {
	c, h := *s, *s.history
	h.numbers = nil // the copy may build its own while other goroutines read
	h.older = &pager{pages: &chunkPages{ctx, l, &c}}
	c.history = &h
	return &c
}

// threadsAt returns the threads after record n. It cuts the threads of the head where the two lists part, and adds the
// turns that record n's list has behind that. If a record behind it did more than add turns, threadsAt starts from the
// newest mark instead.
func (ld *loading) threadsAt(ctx context.Context, n int) (strands, error) {
	s, h := ld.s, ld.s.history
	if n == h.Len()-1 {
		return s.strands, nil
	}
	list, shared := s.segmentsAfter(n), h.shared(n)
	if shared < s.odd {
		threads, rest, err := ld.marked(ctx, list)
		if threads == nil {
			threads, rest = make(strands), list
		}
		for _, seg := range rest {
			if err == nil {
				err = ld.replay(ctx, threads, seg)
			}
		}
		return threads, err
	}
	lengths, err := h.lengthsAt(shared)
	if err != nil {
		return nil, err
	}
	threads := s.strands.cut(h, lengths)
	for _, seg := range list {
		if seg.from += max(0, shared+1-seg.first); err == nil && seg.from <= seg.to {
			err = ld.grow(ctx, threads, seg)
		}
	}
	return threads, err
}

// grow adds the turns of a segment whose records only added turns.
func (ld *loading) grow(ctx context.Context, threads strands, seg segment) error {
	t := ld.s.sources[seg.source]
	add := func(name string, from, to int) {
		if from < to {
			threads.strand(name).push(span{source: seg.source, from: from, to: to})
		}
	}
	part := func(c *chunkContent) {
		from, to := max(seg.from, c.first)-c.first, min(seg.to+1, c.end())-c.first
		if from >= to {
			return
		}
		for name, turns := range c.turns {
			end := turns.First + len(turns.Turns)
			if to < len(c.offsets) {
				end = c.firstOf(name, c.offsets[to])
			}
			add(name, c.firstOf(name, c.offsets[from]), end)
		}
	}
	err := t.chunks(ctx, ld.Loader, seg.from, seg.to, func(e *entry) error {
		if seg.from <= e.First && e.First+e.Records <= seg.to+1 {
			for name, turns := range e.Turns {
				add(name, turns[0], turns[0]+turns[1])
			}
			return nil
		}
		c, err := ld.chunk(ctx, t.subject, e)
		if err == nil {
			part(c)
		}
		return err
	})
	part(t.open)
	return err
}

// Offset returns the offset of the last record, or 0 if no record can be read.
func (p *Past) Offset() events.Offset { return p.at }

// Names lists the threads: main first, the others in byte order.
func (p *Past) Names() []string { return sortedNames(p.s.strands) }

// Len returns the number of turns of a thread, 0 if it does not exist.
func (p *Past) Len(thread string) int {
	if th := p.s.strands[thread]; th != nil {
		return th.len()
	}
	return 0
}

// Meta returns the metadata of a thread, or nil.
func (p *Past) Meta(thread string) events.Raw {
	if th := p.s.strands[thread]; th != nil {
		return th.meta
	}
	return nil
}

// Last reads the last n turns of a thread, or all if there are fewer.
func (p *Past) Last(ctx context.Context, thread string, n int) ([]Turn, error) {
	return p.Turns(ctx, thread, p.Len(thread)-n, p.Len(thread))
}

// Turns reads the turns of a thread with from <= number < to, counted from 0. Numbers outside the thread are ignored.
// If a part of the snapshots is lost, Turns reads the log instead.
func (p *Past) Turns(ctx context.Context, thread string, from, to int) ([]Turn, error) {
	var turns []Turn
	err := p.with(ctx, func(s *state) (err error) {
		turns, err = s.turns(ctx, p.l, thread, from, to)
		return err
	})
	return turns, err
}

// with calls read with the state. If a part of the snapshots is lost, it folds a state without them and calls read
// again.
func (p *Past) with(ctx context.Context, read func(*state) error) error {
	err := read(p.s)
	gone, ok := errors.AsType[*lostError](err)
	if !ok {
		return err
	}
	var useless []partID
	for _, m := range p.used {
		p.l.discarded(ctx, m, gone)
		useless = append(useless, partOf(m))
	}
	return p.l.loadWithout(ctx, p.s.subject, p.s.offset(), nil, useless, func(ld *loading) error {
		then, _, err := ld.s.back(ctx, p.l, p.at)
		if err != nil {
			return err
		}
		return read(then)
	})
}
