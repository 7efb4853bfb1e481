package projector

import (
	"errors"
	"fmt"
	"sort"

	"github.com/tallylog/tally/events"
)

// A long history that lets go of its stored blocks has so many of them in memory at the
// most, and so many right after it did.
const (
	mostBlocks  = 4
	fewerBlocks = 1
)

// Shorten gives up memory that the history does not need, and lets go of full blocks if
// there are many in memory. All of them are stored, and read returns one, by number,
// when a later record looks back at it: a rewind, a late record, a fork. An error of
// read is a panic, which CatchUnread catches.
func (h *History) Shorten(read func(n int) ([]byte, error)) {
	h.offsets, h.deltas = fitted(h.offsets), fitted(h.deltas)
	there := h.base / BlockRecords
	if h.Blocks()-there <= mostBlocks {
		return
	}
	s, ok := h.elder.(*shelf)
	if !ok {
		s = &shelf{h: h}
	}
	for n := there; n < h.Blocks()-fewerBlocks; n++ {
		s.take(n)
	}
	s.read, s.last = read, nil
	h.elder = s
	h.forget(len(s.ends) * BlockRecords)
}

// fitted returns a list without much room behind it: most sessions end before they fill
// that, and there are many.
func fitted[E any](list []E) []E {
	if room := cap(list) - len(list); room <= 8 || room <= len(list)/4 {
		return list
	}
	return append(make([]E, 0, len(list)+4), list...)
}

// shelf looks up the records of a history that are in stored blocks. In memory it has
// what says which block that is, and the one that was read last.
type shelf struct {
	h     *History
	read  func(n int) ([]byte, error)
	ends  []events.Offset // of each block's last record
	marks []*mark         // one in each block, nil if there is none
	last  *shelved
}

// shelved is a block that was read.
type shelved struct {
	number  int
	offsets []events.Offset
	deltas  []delta
}

// take remembers what is needed of the next block before it is let go.
func (s *shelf) take(n int) {
	first, end := n*BlockRecords, (n+1)*BlockRecords
	s.ends = append(s.ends, s.h.offset(end-1))
	at := sort.Search(len(s.h.marks), func(i int) bool { return s.h.marks[i].record >= first })
	if at < len(s.h.marks) && s.h.marks[at].record < end {
		m := s.h.marks[at]
		s.marks = append(s.marks, &m)
		return
	}
	s.marks = append(s.marks, nil)
}

// footprint is about how many bytes of memory the shelf takes.
func (s *shelf) footprint() int {
	n := 80 * len(s.ends)
	if s.last != nil {
		n += 8*cap(s.last.offsets) + 32*cap(s.last.deltas)
	}
	return n
}

// get reads a block, unless it is the last one that was read.
func (s *shelf) get(n int) *shelved {
	if s.last != nil && s.last.number == n {
		return s.last
	}
	data, err := s.read(n)
	if err == nil {
		s.last, err = s.decode(n, data)
	}
	if err != nil {
		panic(&unread{fmt.Errorf("projector: block %d of the history of %s: %w", n, s.h.subject, err)})
	}
	return s.last
}

func (s *shelf) decode(n int, data []byte) (*shelved, error) {
	part, d := NewHistory(s.h.subject), &decoder{b: data}
	part.readRecords(d)
	switch {
	case d.err != nil:
		return nil, d.err
	case len(d.b) > 0 || len(part.offsets) != BlockRecords || part.lastOffset() != s.ends[n]:
		return nil, errors.New("it is not the one that was stored")
	}
	for i := range part.deltas {
		x := &part.deltas[i]
		if x.thread < 0 && !x.everywhere() || x.thread >= len(s.h.names) {
			return nil, fmt.Errorf("a delta of thread %d", x.thread)
		}
		x.record += n * BlockRecords
	}
	return &shelved{n, part.offsets, part.deltas}, nil
}

// numberAt implements elder.
func (s *shelf) numberAt(at events.Offset) int {
	n := sort.Search(len(s.ends), func(i int) bool { return s.ends[i] >= at })
	if n == len(s.ends) {
		return n*BlockRecords - 1
	}
	offsets := s.get(n).offsets
	return n*BlockRecords + sort.Search(len(offsets), func(i int) bool { return offsets[i] > at }) - 1
}

// offset implements elder.
func (s *shelf) offset(n int) events.Offset {
	if n%BlockRecords == BlockRecords-1 {
		return s.ends[n/BlockRecords]
	}
	return s.get(n / BlockRecords).offsets[n%BlockRecords]
}

// block implements elder.
func (s *shelf) block(n int) block {
	n /= BlockRecords
	return block{first: n * BlockRecords, deltas: s.get(n).deltas, mark: s.marks[n]}
}
