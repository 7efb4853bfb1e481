package projector

import (
	"fmt"
	"slices"
	"sort"

	"github.com/tallylog/tally/events"
)

// page is a run of a timeline's records: those in memory, or some below its base that
// are stored together.
type page struct {
	first   int             // number of the first one
	offsets []events.Offset // ascending
	deltas  []delta         // what the records did to the lengths of threads
	mark    *mark           // at one of the records, if there is any
}

// end is the number of the record after the last.
func (p *page) end() int { return p.first + len(p.offsets) }

// numberAt returns the last record at or below an offset, the one before the page if
// its records are all above.
func (p *page) numberAt(at events.Offset) int {
	return p.first + sort.Search(len(p.offsets), func(i int) bool { return p.offsets[i] > at }) - 1
}

// pager looks up the records of a timeline below its base. It holds the page that was
// read last.
type pager struct {
	pages
	last *page
}

// pages are where the records below a base are stored. Both methods return one page
// with all that is stored of it, or an error that names the session and the page.
type pages interface {
	// having reads the page that has a record.
	having(n int) (*page, error)
	// reaching reads the page that tells which record is the last one at or below an
	// offset: it has that record, or begins right behind it. It has no records if there
	// is none.
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

// A long timeline that lets go of its stored blocks has so many of them in memory at the
// most, and so many right after it did.
const (
	maxBlocks   = 4
	fewerBlocks = 1
)

// Shorten gives up memory that the timeline does not need, and lets go of full blocks if
// there are many in memory. All of them are stored, and read returns one, by number,
// when a later record looks back at it: a rewind, a late record, a fork.
func (t *Timeline) Shorten(read func(n int) ([]byte, error)) {
	t.offsets, t.deltas = fitted(t.offsets), fitted(t.deltas)
	there := t.base / BlockRecords
	if t.Blocks()-there <= maxBlocks {
		return
	}
	s := &blocks{of: t}
	if t.older != nil {
		s = t.older.pages.(*blocks)
	}
	for n := there; n < t.Blocks()-fewerBlocks; n++ {
		s.take(n)
	}
	s.read, t.older = read, &pager{pages: s}
	t.forget(len(s.ends) * BlockRecords)
}

// fitted returns a list without much room behind it: most sessions end before they fill
// that, and there are many.
func fitted[E any](list []E) []E {
	if room := cap(list) - len(list); room <= 8 || room <= len(list)/4 {
		return list
	}
	return append(make([]E, 0, len(list)+4), list...)
}

// forget lets go of the records below a number, which are stored.
func (t *Timeline) forget(base int) {
	if base <= t.base {
		return
	}
	t.deltas = slices.Clone(t.deltas[firstDelta(t.deltas, base):])
	t.offsets = slices.Clone(t.offsets[base-t.base:])
	t.marks = slices.DeleteFunc(t.marks, func(m mark) bool { return m.record < base })
	t.base = base
}

// blocks are the pages of a timeline that was shortened. In memory they have what says
// which block a record is in.
type blocks struct {
	of    *Timeline
	read  func(n int) ([]byte, error)
	ends  []events.Offset // of each block's last record
	marks []*mark         // one in each block, nil if there is none
}

// take remembers what is needed of the next block before it is let go.
func (s *blocks) take(n int) {
	t, first, end := s.of, n*BlockRecords, (n+1)*BlockRecords
	s.ends = append(s.ends, t.offsets[end-1-t.base])
	s.marks = append(s.marks, nil)
	if at := sort.Search(len(t.marks), func(i int) bool { return t.marks[i].record >= first }); at < len(t.marks) && t.marks[at].record < end {
		m := t.marks[at]
		s.marks[n] = &m
	}
}

// having implements pages.
func (s *blocks) having(n int) (*page, error) {
	n /= BlockRecords
	data, err := s.read(n)
	d := &decoder{b: data, err: err}
	p := d.page(n*BlockRecords, len(s.of.names))
	if p.mark = s.marks[n]; d.end() == nil && (len(p.offsets) != BlockRecords || p.offsets[BlockRecords-1] != s.ends[n]) {
		d.fail("it is not the one that was stored")
	}
	if d.err != nil {
		return nil, fmt.Errorf("projector: block %d of the history of %s: %w", n, s.of.subject.Name(), d.err)
	}
	return p, nil
}

// reaching implements pages.
func (s *blocks) reaching(at events.Offset) (*page, error) {
	n, _ := slices.BinarySearch(s.ends, at)
	return s.having(min(n, len(s.ends)-1) * BlockRecords)
}
