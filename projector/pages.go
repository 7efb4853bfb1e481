package projector

import (
	"fmt"
	"slices"
	"sort"

	"github.com/tallylog/tally/events"
)

// page is a run of a timeline's records: the records in memory, or records below its base that are stored together.
type page struct {
	first   int             // number of the first record
	offsets []events.Offset // ascending
	deltas  []delta         // changes to the lengths of threads
	mark    *mark           // at one of the records, or nil
}

// end returns the number after the last record.
func (p *page) end() int { return p.first + len(p.offsets) }

// numberAt returns the last record at or below an offset. If all records of the page are above it, the result is the
// record before the page.
func (p *page) numberAt(at events.Offset) int {
	return p.first + sort.Search(len(p.offsets), func(i int) bool { return p.offsets[i] > at }) - 1
}

// pager looks up the records of a timeline below its base. It keeps the page that it read last.
type pager struct {
	pages
	last *page
}

// pages reads the stored records below a base. Both methods return a complete stored page, or an error that names the
// session and the page.
type pages interface {
	// having reads the page with record n.
	having(n int) (*page, error)
	// reaching reads the page that determines the last record at or below an offset. The page holds that record, or
	// begins right behind it. If there is no page, the result is empty.
	reaching(at events.Offset) (*page, error)
}

func (p *pager) having(n int) (*page, error) {
	if l := p.last; l != nil && l.first <= n && n < l.end() {
		return l, nil
	}
	return p.hold(p.pages.having(n))
}

func (p *pager) reaching(at events.Offset) (*page, error) {
	if l := p.last; l != nil && len(l.offsets) > 0 && l.offsets[0] <= at && at <= l.offsets[len(l.offsets)-1] {
		return l, nil
	}
	return p.hold(p.pages.reaching(at))
}

func (p *pager) hold(l *page, err error) (*page, error) {
	if err == nil {
		p.last = l
	}
	return l, err
}

// A long timeline that drops stored blocks from memory keeps at most maxBlocks of them, and fewerBlocks right after it
// dropped some.
const (
	maxBlocks   = 4
	fewerBlocks = 1
)

// Shorten frees memory that the timeline does not need, and drops full blocks if many are in memory. All blocks must be
// stored. read returns a block by number, for a later record that refers to it: a rewind, a stale record, a fork.
func (t *Timeline) Shorten(read func(n int) ([]byte, error)) {
	t.offsets, t.deltas = fitted(t.offsets), fitted(t.deltas)
	there := t.base / BlockRecords
	if t.Blocks()-there <= maxBlocks {
		return
	}
	s := &blockReader{of: t}
	if t.older != nil {
		s = t.older.pages.(*blockReader)
	}
	for n := there; n < t.Blocks()-fewerBlocks; n++ {
		s.take(n)
	}
	s.read, t.older = read, &pager{pages: s}
	t.forget(len(s.ends) * BlockRecords)
}

// fitted returns the list with little spare capacity. Most sessions end before they fill it, and there are many.
func fitted[E any](list []E) []E {
	if room := cap(list) - len(list); room <= 8 || room <= len(list)/4 {
		return list
	}
	return append(make([]E, 0, len(list)+4), list...)
}

// forget drops the records below a number. They must be stored.
func (t *Timeline) forget(base int) {
	if base <= t.base {
		return
	}
	t.deltas = slices.Clone(t.deltas[firstDelta(t.deltas, base):])
	t.offsets = slices.Clone(t.offsets[base-t.base:])
	t.marks = slices.DeleteFunc(t.marks, func(m mark) bool { return m.record < base })
	t.base = base
}

// blockReader reads the pages of a shortened timeline. It keeps an index in memory that maps records to blocks.
type blockReader struct {
	of    *Timeline
	read  func(n int) ([]byte, error)
	ends  []events.Offset // of each block's last record
	marks []*mark         // one for each block, or nil
}

// take keeps the index data of the next block before it is dropped.
func (s *blockReader) take(n int) {
	t, first, end := s.of, n*BlockRecords, (n+1)*BlockRecords
	s.ends = append(s.ends, t.offsets[end-1-t.base])
	s.marks = append(s.marks, nil)
	if at := sort.Search(len(t.marks), func(i int) bool { return t.marks[i].record >= first }); at < len(t.marks) && t.marks[at].record < end {
		m := t.marks[at]
		s.marks[n] = &m
	}
}

// having implements pages.
func (s *blockReader) having(n int) (*page, error) {
	n /= BlockRecords
	data, err := s.read(n)
	d := &decoder{b: data, err: err}
	p := d.page(n*BlockRecords, len(s.of.names))
	if p.mark = s.marks[n]; d.end() == nil && (len(p.offsets) != BlockRecords || p.offsets[BlockRecords-1] != s.ends[n]) {
		d.fail("it has other records than the stored block")
	}
	if d.err != nil {
		return nil, fmt.Errorf("projector: block %d of the history of %s: %w", n, s.of.subject.Name(), d.err)
	}
	return p, nil
}

// reaching implements pages.
func (s *blockReader) reaching(at events.Offset) (*page, error) {
	n, _ := slices.BinarySearch(s.ends, at)
	return s.having(min(n, len(s.ends)-1) * BlockRecords)
}
