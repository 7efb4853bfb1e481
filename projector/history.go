package projector

import (
	"fmt"
	"slices"
	"sort"

	"github.com/tallylog/tally/events"
)

// History is the order of a session's records together with the list of live
// records after each of them:
//
//   - after session.rewound{to: T}, the list is again what it was after the last
//     record at or below T;
//   - a late or void record leaves the list as it was;
//   - every other record is appended to the list.
//
// The history of a fork begins with its parent's live list at the fork offset.
//
// Records are numbered here from 0 in their order; a list of live records is a
// chain of stretches of such numbers that shares its older part with the lists it
// grew from. So a list is always a prefix of every list that contains its last
// record, and one look-up decides whether that is so.
//
// Of a long history only the newest records need be in memory: those below base
// are looked up elsewhere when a record looks back at them. Such a history stays
// inside the loader, which knows that a look-up can fail.
type History struct {
	subject events.Subject
	base    int             // the number of the first record that offsets has
	elder   elder           // has those below base
	offsets []events.Offset // of every record from base on, inherited ones first, ascending
	ends    ends
	sources []source // whose records the inherited ones are
	points  []point  // where the list did something else than grow
	names   []string // thread names, in order of appearance
	deltas  []delta  // what each record from base on did to the threads' lengths
	lengths lengths  // of the threads in the list after the last record
	marks   []mark   // lengths at some records, so that a rewind need not count from the start
	late    []place  // the late records
	rewinds []place  // the rewinds that had an effect
}

// ends are the offsets of records that are asked for all the time.
type ends struct {
	first, own, last events.Offset // of the first record, the first that is not inherited, the last; 0: there is none
}

// place is a record by its number and its offset.
type place struct {
	number int
	at     events.Offset
}

// elder looks up the records of a history below its base. It panics with an
// *unread if they cannot be had.
type elder interface {
	// numberAt returns the last record at or below an offset, -1 if there is none.
	numberAt(at events.Offset) int
	// offset returns the offset of a record.
	offset(n int) events.Offset
	// block returns what is kept together with a record.
	block(n int) block
}

// block is a stretch of records below the base.
type block struct {
	first  int
	deltas []delta
	mark   *mark // at one of its records, if there is any
}

// unread is the panic of an elder.
type unread struct{ err error }

// CatchUnread recovers from a look at a stored block that failed, and stores its error in
// *err. Defer it in every function that may look below a history's base.
func CatchUnread(err *error) {
	switch r := recover().(type) {
	case nil:
	case *unread:
		*err = r.err
	default:
		panic(r)
	}
}

// source says that records up to number end come from a subject.
type source struct {
	subject events.Subject
	end     int
}

// point says: from record number on, the list is prefix, then all records from
// number open to the present one.
type point struct {
	number int
	prefix *stretch
	open   int
	openAt events.Offset // of record open, 0 as long as there is none
}

// stretch is a run of consecutive record numbers at the end of a chain.
type stretch struct {
	prev         *stretch
	from, to     int
	fromAt, toAt events.Offset // toAt is 0 in a stretch that may still grow
}

// absent is the length of a thread that does not exist; an empty one has 0.
const absent = -1

type lengths []int // by thread number

// everyThread stands in a delta for all threads there are.
const everyThread = -1

type delta struct {
	record, thread int
	set            bool // to n, else n more
	n              int
}

type mark struct {
	record  int
	lengths lengths
}

// markEvery bounds how many records a rewind counts over.
const markEvery = 256

// Verdict says what a record is at its place in the history.
type Verdict struct {
	Live bool   // it was appended to the live list
	Late bool   // its producer had seen what is not in effect any more
	Void string // why it has no effect; "" if it has
}

// Interval is a stretch of live records by their offsets, both inclusive.
type Interval struct {
	From events.Offset `json:"from"`
	To   events.Offset `json:"to"`
}

func (i Interval) String() string {
	if i.From == i.To {
		return i.From.String()
	}
	return fmt.Sprintf("%v-%v", i.From, i.To)
}

// NewHistory returns the history of no records.
func NewHistory(sub events.Subject) *History {
	return &History{subject: sub, points: []point{{number: -1}}}
}

// Inherit begins the history with the live list that parent has after its last
// record at or below an offset: that of a fork.
func (h *History) Inherit(parent *History, at events.Offset) {
	upto := parent.numberAt(at)
	if h.Len() > 0 {
		panic("projector: a history inherits before its own first record")
	}
	renumbered := make(map[int]int) // live records of the parent, their number here
	var deltas []delta              // of the parent's, those below its base
	below := -1                     // the first record of the block that they were taken of last
	for _, s := range parent.stretches(upto) {
		for n := s.from; n <= s.to; n++ {
			if n < parent.base {
				if b := parent.elder.block(n); b.first != below {
					deltas, below = append(deltas, b.deltas...), b.first
				}
			}
			renumbered[n] = len(h.offsets)
			h.enter(parent.offset(n))
			h.addSource(parent.sourceOf(n), len(h.offsets))
		}
	}
	h.ends.own = 0
	h.names = slices.Clone(parent.names)
	h.lengths = parent.lengthsAt(upto)
	for _, d := range append(deltas, parent.deltas...) {
		if n, ok := renumbered[d.record]; ok {
			d.record = n
			h.deltas = append(h.deltas, d)
		}
	}
}

// enter takes the offset of the next record.
func (h *History) enter(at events.Offset) {
	n := h.Len()
	h.offsets = append(h.offsets, at)
	h.ends.last = at
	if n == 0 {
		h.ends.first = at
	}
	if n == h.inherited() {
		h.ends.own = at
	}
	if p := &h.points[len(h.points)-1]; p.open == n {
		p.openAt = at
	}
}

func (h *History) addSource(sub events.Subject, end int) {
	if last := len(h.sources) - 1; last >= 0 && h.sources[last].subject == sub {
		h.sources[last].end = end
		return
	}
	h.sources = append(h.sources, source{sub, end})
}

// inherited is the number of records that come from other sessions.
func (h *History) inherited() int {
	if len(h.sources) == 0 {
		return 0
	}
	return h.sources[len(h.sources)-1].end
}

// sourceOf returns the subject of a record.
func (h *History) sourceOf(n int) events.Subject {
	i := sort.Search(len(h.sources), func(i int) bool { return n < h.sources[i].end })
	if i == len(h.sources) {
		return h.subject
	}
	return h.sources[i].subject
}

// Add takes the next record and says what it is at its place. The fact has passed
// Fact.Impossible.
func (h *History) Add(f Fact) Verdict {
	n := h.Len()
	if f.Offset <= h.ends.last {
		panic(fmt.Sprintf("projector: record %v after %v", f.Offset, h.ends.last))
	}
	h.enter(f.Offset)
	if f.Invalid != nil {
		h.skip(n)
		return Verdict{Void: f.Invalid.Error()}
	}
	if p, ok := f.Payload.(*events.SessionRewound); ok {
		if reason := h.cannotRewind(n, p); reason != "" {
			h.skip(n)
			return Verdict{Void: reason}
		}
		h.rewinds = append(h.rewinds, place{n, f.Offset})
		h.rewind(n, h.numberAt(p.To))
		return Verdict{}
	}
	if seen, ok := f.Seen(); ok && h.isLate(n, seen) {
		h.late = append(h.late, place{n, f.Offset})
		h.skip(n)
		return Verdict{Late: true}
	}
	if reason := h.measure(n, f.Payload); reason != "" {
		h.skip(n)
		return Verdict{Void: reason}
	}
	if n%markEvery == 0 {
		h.marks = append(h.marks, mark{n, slices.Clone(h.lengths)})
	}
	return Verdict{Live: true}
}

// skip leaves record n out of the list.
func (h *History) skip(n int) {
	h.points = append(h.points, point{number: n, prefix: h.settled(n - 1), open: n + 1})
}

// rewind makes the list after record n what it was after record j.
func (h *History) rewind(n, j int) {
	h.points = append(h.points, point{number: n, prefix: h.settled(j), open: n + 1})
	h.lengths = h.lengthsAt(j)
}

func (h *History) cannotRewind(n int, p *events.SessionRewound) string {
	switch {
	case p.To >= h.ends.last:
		return fmt.Sprintf("a rewind to %v, which is not below itself", p.To)
	case n == 0 || p.To < h.ends.first:
		return fmt.Sprintf("a rewind to %v, before the session's first record", p.To)
	case p.Undoes != 0 && !slices.ContainsFunc(h.rewinds, func(r place) bool { return r.at == p.Undoes }):
		return fmt.Sprintf("takes back %v, which is no rewind of this session", p.Undoes)
	}
	return ""
}

// numberAt returns the last record at or below an offset, -1 if there is none.
func (h *History) numberAt(at events.Offset) int {
	if at >= h.ends.last {
		return h.Len() - 1
	}
	if h.base > 0 && (len(h.offsets) == 0 || at < h.offsets[0]) {
		return h.elder.numberAt(at)
	}
	return h.base + sort.Search(len(h.offsets), func(i int) bool { return h.offsets[i] > at }) - 1
}

// offset returns the offset of a record.
func (h *History) offset(n int) events.Offset {
	switch {
	case n == h.Len()-1:
		return h.ends.last
	case n < h.base:
		return h.elder.offset(n)
	}
	return h.offsets[n-h.base]
}

// isLate reports whether the list at the offset that a producer had seen is no
// longer a prefix of the list before record n.
func (h *History) isLate(n int, seen events.Offset) bool {
	last := h.lastLive(min(h.numberAt(seen), n-1))
	return last >= 0 && !h.contains(n-1, last)
}

// point returns the last point at or before record n.
func (h *History) point(n int) point {
	return h.points[sort.Search(len(h.points), func(i int) bool { return h.points[i].number > n })-1]
}

// chain returns the list after record n; nil is the empty one.
func (h *History) chain(n int) *stretch {
	if n < 0 {
		return nil
	}
	p := h.point(n)
	if p.open > n {
		return p.prefix
	}
	return &stretch{prev: p.prefix, from: p.open, to: n, fromAt: p.openAt}
}

// settled returns the list after record n as it stays, whatever comes next.
func (h *History) settled(n int) *stretch {
	c := h.chain(n)
	if c != nil && c.toAt == 0 {
		c.toAt = h.offset(c.to)
	}
	return c
}

// lastLive returns the last record of the list after record n, -1 if it is empty.
func (h *History) lastLive(n int) int {
	if c := h.chain(n); c != nil {
		return c.to
	}
	return -1
}

// contains reports whether record x is in the list after record n.
func (h *History) contains(n, x int) bool {
	c := h.chain(n)
	for c != nil && c.from > x {
		c = c.prev
	}
	return c != nil && x <= c.to
}

// stretches returns the list after record n, oldest first.
func (h *History) stretches(n int) []stretch {
	var list []stretch
	for c := h.chain(n); c != nil; c = c.prev {
		if last := len(list) - 1; last >= 0 && list[last].from == c.to+1 {
			list[last].from, list[last].fromAt = c.from, c.fromAt
			continue
		}
		list = append(list, stretch{from: c.from, to: c.to, fromAt: c.fromAt, toAt: c.toAt})
	}
	slices.Reverse(list)
	return list
}

// Len is the number of records, inherited ones included.
func (h *History) Len() int { return h.base + len(h.offsets) }

// First and Last are the offsets of the session's own first and last record, 0 if
// it has none.
func (h *History) First() events.Offset { return h.ends.own }

// Last is the offset of the session's own last record, 0 if it has none.
func (h *History) Last() events.Offset {
	if h.ends.own == 0 {
		return 0
	}
	return h.ends.last
}

// lastOffset is the offset of the last record, inherited or not, 0 if there is none.
func (h *History) lastOffset() events.Offset { return h.ends.last }

// Before returns the last record below an offset, 0 if there is none.
func (h *History) Before(at events.Offset) events.Offset {
	if at == 0 {
		return 0
	}
	return h.At(at - 1)
}

// At returns the last record at or below an offset, 0 if there is none.
func (h *History) At(at events.Offset) events.Offset {
	if n := h.numberAt(at); n >= 0 {
		return h.offset(n)
	}
	return 0
}

// IsLive reports whether the record at an offset is in effect after the last one.
func (h *History) IsLive(at events.Offset) bool {
	n := h.numberAt(at)
	return n >= 0 && h.offset(n) == at && h.contains(h.Len()-1, n)
}

// Live returns the list in effect after the last record at or below an offset.
func (h *History) Live(at events.Offset) []Interval {
	var list []Interval
	for _, s := range h.stretches(h.numberAt(at)) {
		if s.toAt == 0 {
			s.toAt = h.offset(s.to)
		}
		list = append(list, Interval{s.fromAt, s.toAt})
	}
	return list
}

// LastLive returns the last offset of that list, 0 if it is empty.
func (h *History) LastLive(at events.Offset) events.Offset {
	if n := h.lastLive(h.numberAt(at)); n >= 0 {
		return h.offset(n)
	}
	return 0
}

// Late lists the records whose producer had seen what was rewound meanwhile.
func (h *History) Late() []events.Offset {
	var list []events.Offset
	for _, p := range h.late {
		list = append(list, p.at)
	}
	return list
}

// Turns returns the number of turns in effect after the last record, over all
// threads.
func (h *History) Turns() int { return h.lengths.sum() }

// TurnsAt returns the number of turns of a thread in effect after the last record
// at or below an offset.
func (h *History) TurnsAt(thread string, at events.Offset) int {
	n, i := h.numberAt(at), slices.Index(h.names, thread)
	if n < 0 || i < 0 {
		return 0
	}
	return max(h.lengthsAt(n).of(i), 0)
}
