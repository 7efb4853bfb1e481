package projector

import (
	"context"
	"slices"

	"github.com/tallylog/tally/events"
)

// elders looks up the records of a state's history that are in chunks.
type elders struct {
	ctx context.Context // of the one load that this is made for
	l   *Loader
	s   *state
}

// segments are all of the history's records that are in chunks, in order.
func (e *elders) segments() []segment {
	own := e.s.ownSegment()
	own.to = e.s.history.base - own.first - 1
	if own.to < own.from {
		return e.s.segments
	}
	return append(slices.Clip(e.s.segments), own)
}

// chunk returns the chunk of a segment's source that matches.
func (e *elders) chunk(seg segment, match func(*entry) bool) (*chunk, *entry) {
	t := e.s.sources[seg.source]
	en, err := t.find(e.ctx, e.l, match)
	var c *chunk
	if err == nil {
		c, err = e.l.chunk(e.ctx, t.subject, en)
	}
	if err != nil {
		panic(&unread{err})
	}
	return c, en
}

// numberAt implements elder.
func (e *elders) numberAt(at events.Offset) int {
	for _, seg := range slices.Backward(e.segments()) {
		if seg.fromAt > at {
			continue
		}
		c, _ := e.chunk(seg, reaches(at))
		return seg.first + min(c.numberAt(at), seg.to) - seg.from
	}
	return -1
}

// containing returns the segment that a record of the history is in, and its number
// there.
func (e *elders) containing(n int) (segment, int) {
	for _, seg := range e.segments() {
		if own := n - seg.first + seg.from; own >= seg.from && own <= seg.to {
			return seg, own
		}
	}
	panic(&unread{lost("no chunk has record %d of %s", n, e.s.subject)})
}

// offset implements elder.
func (e *elders) offset(n int) events.Offset {
	seg, own := e.containing(n)
	c, _ := e.chunk(seg, hasRecord(own))
	return c.offsets[own-c.first]
}

// block implements elder.
func (e *elders) block(n int) block {
	seg, own := e.containing(n)
	c, en := e.chunk(seg, hasRecord(own))
	h, shift := e.s.history, seg.first-seg.from
	from, to := max(c.first, seg.from), min(c.end(), seg.to+1)
	b := block{first: from + shift, deltas: h.deltasOf(c, from, to, shift)}
	if m := en.Mark; m != nil && m.Record >= from && m.Record < to {
		threads, err := strandsOf(m.Threads, seg.source+1)
		if err != nil {
			panic(&unread{lost("a mark at %v: %v", en.To, err)})
		}
		b.mark = &mark{m.Record + shift, threads.lengths(h.names)}
	}
	return b
}
