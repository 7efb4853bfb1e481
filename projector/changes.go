package projector

import (
	"bytes"
	"context"
	"iter"
	"maps"
	"slices"
	"sort"
)

// Turns are turns of a session's threads that are counted without being read.
type Turns struct {
	Count  int
	past   *Past
	ranges []turnRange // in the order of All
}

// turnRange consists of the turns of a thread with from <= number < to, counted from 0.
type turnRange struct {
	thread   string
	from, to int
}

// Changes compares the threads of a session after two of its records. It counts the turns that a move from one to the
// other takes out of effect, and the turns that it brings back. Both states must be of one outline.
func Changes(from, to *Past) (leaves, returns Turns) { return from.without(to), to.without(from) }

// without returns the turns of p that are not in the threads of another state.
func (p *Past) without(other *Past) Turns {
	t := Turns{past: p}
	for _, name := range p.Names() {
		there, at := other.s.strands[name].sorted(), 0
		for _, sp := range p.s.strands[name].spans {
			for n := sp.from; n < sp.to; {
				from, to := sp.to, sp.to // the next turns that both have
				i := sort.Search(len(there), func(i int) bool {
					return there[i].source > sp.source || there[i].source == sp.source && there[i].to > n
				})
				if i < len(there) && there[i].source == sp.source {
					from, to = max(n, min(there[i].from, sp.to)), min(there[i].to, sp.to)
				}
				if n < from {
					t.Count += from - n
					t.ranges = append(t.ranges, turnRange{name, at + n - sp.from, at + from - sp.from})
				}
				n = to
			}
			at += sp.to - sp.from
		}
	}
	return t
}

// readAtOnce is the number of turns that All keeps in memory.
const readAtOnce = 16

// All reads the turns: thread by thread, main first, in the order of their numbers.
func (t Turns) All(ctx context.Context) iter.Seq2[TurnAt, error] {
	return func(yield func(TurnAt, error) bool) {
		for _, r := range t.ranges {
			for from := r.from; from < r.to; from += readAtOnce {
				turns, err := t.past.Turns(ctx, r.thread, from, min(from+readAtOnce, r.to))
				if err != nil {
					yield(TurnAt{}, err)
					return
				}
				for i, turn := range turns {
					if !yield(TurnAt{r.thread, from + i + 1, turn}, nil) {
						return
					}
				}
			}
		}
	}
}

// Crosses reports whether a rewind of the outline to an earlier state takes events of other vocabularies out of effect,
// or back, if they move with the threads.
func (o *Outline) Crosses(ctx context.Context, to *Past) (crosses bool, err error) {
	err = o.with(ctx, func(s *state) error {
		h := s.reading(ctx, o.l).history
		n, err := h.numberAt(to.at)
		if err == nil {
			crosses, err = h.crosses(n)
		}
		return err
	})
	return crosses, err
}

// Equal reports whether two states have equal threads: turns, pins and metadata. The offsets of the turns do not count.
// Both states must be of one outline. Equal reads turns only if the threads are equally long and not the same.
func (p *Past) Equal(ctx context.Context, other *Past) (bool, error) {
	if !maps.EqualFunc(p.s.strands, other.s.strands, func(a, b *strand) bool { return a.len() == b.len() && bytes.Equal(a.meta, b.meta) }) {
		return false, nil
	}
	for name, th := range p.s.strands {
		if slices.Equal(th.spans, other.s.strands[name].spans) {
			continue
		}
		a, err := p.Turns(ctx, name, 0, th.len())
		if err != nil {
			return false, err
		}
		b, err := other.Turns(ctx, name, 0, th.len())
		if err != nil || (&Thread{Turns: a}).Hash() != (&Thread{Turns: b}).Hash() {
			return false, err
		}
	}
	return true, nil
}
