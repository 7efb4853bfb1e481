package projector

import (
	"context"
	"maps"
	"slices"
)

// complete returns the session with all of its turns, offsets and costs in memory. It reads each chunk once.
func (ld *loading) complete(ctx context.Context) (*Session, error) {
	s, h := ld.s, ld.s.history
	ledger, whole := *s.ledger, *h
	ledger.index()
	out := &Session{Subject: s.subject, Threads: make(Threads, len(s.strands)), Ledger: &ledger, Damaged: s.damaged}
	fill := newFilling(s, out.Threads)
	whole.base, whole.older, whole.offsets, whole.deltas, whole.marks, whole.numbers = 0, nil, nil, nil, slices.Clip(h.marks), nil
	whole.named.sizes = maps.Clone(h.named.sizes)
	for _, seg := range append(slices.Clip(s.segments), s.ownSegment()) {
		t, own, shift := s.sources[seg.source], seg.source == len(s.sources)-1, seg.first-seg.from
		take := func(c *chunkContent) {
			from, to := max(c.first, seg.from), min(c.end(), seg.to+1)
			if from >= to {
				return
			}
			whole.offsets = append(whole.offsets, c.offsets[from-c.first:to-c.first]...)
			whole.deltas = append(whole.deltas, h.deltasOf(c, from, to, shift)...)
			if own {
				for _, cost := range c.costs {
					ledger.spend(cost)
				}
			}
			fill.take(seg.source, c)
		}
		err := t.chunks(ctx, ld.Loader, seg.from, seg.to, func(e *entry) error {
			c, _, err := ld.readChunk(ctx, t.subject, e) // not the cache: the caller may change the session
			if err != nil {
				return err
			}
			take(c)
			return nil
		})
		if err != nil {
			return nil, err
		}
		take(t.open)
	}
	if whole.Len() != h.Len() || !fill.full() {
		return nil, lostf("the chunks of %s do not have all of its records", s.subject.Name())
	}
	out.History = &History{whole}
	return out, out.History.remember()
}

// filling copies the turns of chunks to where strands refer to them.
type filling struct {
	threads Threads
	wanted  map[turnsOf][]wanted
	missing int // turns
}

// turnsOf identifies the turns that a source added to a thread.
type turnsOf struct {
	source int
	thread string
}

// wanted is a span with its index in a thread.
type wanted struct {
	span
	at   int
	into []Turn
}

func newFilling(s *state, threads Threads) *filling {
	f := &filling{threads: threads, wanted: make(map[turnsOf][]wanted)}
	for name, th := range s.strands {
		turns, at := make([]Turn, th.len()), 0
		threads[name] = &Thread{Turns: turns, Meta: th.meta}
		for _, sp := range th.spans {
			key := turnsOf{sp.source, name}
			f.wanted[key] = append(f.wanted[key], wanted{sp, at, turns})
			at += sp.to - sp.from
		}
		f.missing += at
	}
	return f
}

// take copies the wanted turns that a chunk of a source holds.
func (f *filling) take(source int, c *chunkContent) {
	for name, b := range c.turns {
		for _, w := range f.wanted[turnsOf{source, name}] {
			from, to := max(w.from, b.First), min(w.to, b.First+len(b.Turns))
			for n := from; n < to; n++ {
				turn := &w.into[w.at+n-w.from]
				if turn.Offset == 0 {
					f.missing--
				}
				*turn = w.pin.of(b.Turns[n-b.First])
			}
		}
	}
}

func (f *filling) full() bool { return f.missing == 0 }

// of returns a turn with its pin applied.
func (p pinning) of(t Turn) Turn {
	if p != asBrought {
		t.Pinned = p == pinned
	}
	return t
}
