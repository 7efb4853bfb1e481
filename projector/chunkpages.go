package projector

import (
	"context"
	"slices"

	"github.com/tallylog/tally/events"
)

// chunkPages reads the pages of a state's timeline from the chunks.
type chunkPages struct {
	ctx context.Context // of the one load that uses this value
	l   *Loader
	s   *state
}

// segments lists all records of the timeline that are in chunks, in order.
func (c *chunkPages) segments() []segment {
	own := c.s.ownSegment()
	own.to = c.s.history.base - own.first - 1
	if own.to < own.from {
		return c.s.segments
	}
	return append(slices.Clip(c.s.segments), own)
}

// having implements pages.
func (c *chunkPages) having(n int) (*page, error) {
	for _, seg := range c.segments() {
		if own := n - seg.first + seg.from; own >= seg.from && own <= seg.to {
			return c.page(seg, hasRecord(own))
		}
	}
	return nil, lostf("no chunk has record %d of %s", n, c.s.subject.Name())
}

// reaching implements pages.
func (c *chunkPages) reaching(at events.Offset) (*page, error) {
	for _, seg := range slices.Backward(c.segments()) {
		if seg.fromAt <= at {
			return c.page(seg, reaches(min(at, seg.toAt)))
		}
	}
	return new(page), nil
}

// page returns the part of a segment that the matching chunk holds, as records of the timeline.
func (c *chunkPages) page(seg segment, match func(*entry) bool) (*page, error) {
	t := c.s.sources[seg.source]
	e, err := t.find(c.ctx, c.l, match)
	if err != nil {
		return nil, err
	}
	chunk, err := c.l.chunk(c.ctx, t.subject, e)
	if err != nil {
		return nil, err
	}
	h, shift := c.s.history, seg.first-seg.from
	from, to := max(chunk.first, seg.from), min(chunk.end(), seg.to+1)
	p := &page{first: from + shift, offsets: chunk.offsets[from-chunk.first : to-chunk.first], deltas: h.deltasOf(chunk, from, to, shift)}
	if m := e.Mark; m != nil && m.Record >= from && m.Record < to {
		lengths, err := m.lengthsOf(h.names, seg.source+1)
		if err != nil {
			return nil, lostf("a mark at %v: %v", e.To, err)
		}
		p.mark = &mark{m.Record + shift, lengths}
	}
	return p, nil
}

// deltasOf returns the deltas of a chunk's records between two numbers of its source. The result numbers records of
// this history, which are higher by shift. Records that never were live are left out.
func (t *Timeline) deltasOf(c *chunkContent, from, to, shift int) []delta {
	var list []delta
	for _, e := range c.effects {
		own := c.first + e.record
		if own < from || own >= to || t.point(own+shift).number == own+shift {
			continue
		}
		thread := everyThread
		if e.thread != events.AllThreads {
			if thread = t.number(e.thread); thread < 0 {
				continue
			}
		}
		list = append(list, delta{own + shift, thread, e.set, e.n})
	}
	return list
}
