package projector

import (
	"fmt"
	"slices"
	"sort"

	"github.com/tallylog/tally/events"
)

// Timeline is the order of a session's records together with the list of live records after each of them:
//
//   - after session.rewound{to: T}, the list returns to its state after the last
//     record at or below T;
//   - a stale or rejected record does not change the list;
//   - every other record is appended to the list.
//
// The timeline of a fork begins with its parent's live list at the fork offset.
//
// Records are numbered here from 0 in their order. A list of live records is a chain of stretches of such numbers that
// shares its older part with the lists it grew from. So a list is always a prefix of every list that contains its last
// record, and one look-up decides whether that is so.
//
// In a long timeline only the newest records need to be in memory: records below base are in pages that are read on
// demand. Methods that may read pages return an error, and then have changed nothing.
type Timeline struct {
	subject  events.Subject
	base     int             // number of the first record in offsets
	older    *pager          // reads records below base
	offsets  []events.Offset // of every record from base on, inherited ones first, ascending
	ends     ends
	sources  []sourceRange  // of the inherited records
	points   []point        // where the list did anything but grow
	names    []string       // thread names, in order of appearance
	numbers  map[string]int // set if there are many names; nil: built on demand
	deltas   []delta        // changes of each record from base on to the threads' lengths
	lengths  threadLengths  // of the threads in the list after the last record
	marks    []mark         // lengths at some records, as starting points for rewinds
	nextMark int            // first record that may get the next mark
	named    named          // data of own records
	stale    []recordRef    // the stale records
	rewinds  []recordRef    // the effective rewinds
}

// ends caches often needed offsets.
type ends struct {
	first, own, last events.Offset // of the first record, the first own record, the last record; 0: none
}

// recordRef is a record by its number and its offset.
type recordRef struct {
	number int
	at     events.Offset
}

// sourceRange is the subject of the records up to number end.
type sourceRange struct {
	subject events.Subject
	end     int
}

// point describes the list from record number on: prefix, then all records from number open to the current one.
type point struct {
	number int
	prefix *stretch
	open   int
	openAt events.Offset // of record open; 0: it does not exist yet
}

// stretch is a run of consecutive record numbers at the end of a chain.
type stretch struct {
	prev         *stretch
	from, to     int
	fromAt, toAt events.Offset // toAt is 0 in a stretch that may still grow
}

// absent is the length of a thread that does not exist; an empty one has 0.
const absent = -1

type threadLengths []int // by thread number

// everyThread is the thread of a delta that ends all existing threads, or changes none.
const everyThread = -1

type delta struct {
	record, thread int
	set            bool // set the length to n, else add n
	n              int
}

type mark struct {
	record  int
	lengths threadLengths
}

// markEvery bounds the number of records whose lengths a rewind adds up.
const markEvery = 256

// Verdict is the effect of a record at its position in the history.
type Verdict struct {
	Live     bool   // it was appended to the live list
	Stale    bool   // stale: its producer had read records that are no longer in effect
	Rejected string // why it was rejected; "": it was not
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

// NewTimeline returns an empty timeline.
func NewTimeline(sub events.Subject) *Timeline {
	return &Timeline{subject: sub, points: []point{{number: -1}}}
}

// Inherit starts the timeline of a fork with parent's live list after its last record at or below an offset.
func (t *Timeline) Inherit(parent *Timeline, at events.Offset) error {
	if t.Len() > 0 {
		panic("projector: a timeline inherits before its own first record")
	}
	upto, err := parent.numberAt(at)
	if err != nil {
		return err
	}
	fork := NewTimeline(t.subject)
	for _, s := range parent.stretches(upto) {
		for s.from <= s.to {
			p, err := parent.page(s.from)
			if err != nil {
				return err
			}
			fork.take(parent, p, s.from, min(s.to, p.end()-1))
			s.from = p.end()
		}
	}
	fork.ends.own = 0
	lengths, err := parent.lengthsAt(upto)
	if err != nil {
		return err
	}
	known := 0 // threads of the records above: later ones of the parent must change nothing
	for _, d := range fork.deltas {
		known = max(known, d.thread+1)
	}
	fork.names, fork.lengths = slices.Clone(parent.names[:known]), lengths[:min(known, len(lengths))]
	*t = *fork
	return nil
}

// take adds the records of a parent's page between two numbers, both inclusive.
func (t *Timeline) take(parent *Timeline, p *page, from, to int) {
	shift := t.Len() - from
	for n := from; n <= to; n++ {
		t.enter(p.offsets[n-p.first])
		t.addSource(parent.sourceOf(n), t.Len())
	}
	for _, d := range between(p.deltas, from, to) {
		d.record += shift
		t.deltas = append(t.deltas, d)
	}
}

// enter adds the offset of the next record.
func (t *Timeline) enter(at events.Offset) {
	n := t.Len()
	t.offsets = append(t.offsets, at)
	t.ends.last = at
	if n == 0 {
		t.ends.first = at
	}
	if n == t.inherited() {
		t.ends.own = at
	}
	if p := &t.points[len(t.points)-1]; p.open == n {
		p.openAt = at
	}
}

func (t *Timeline) addSource(sub events.Subject, end int) {
	if last := len(t.sources) - 1; last >= 0 && t.sources[last].subject == sub {
		t.sources[last].end = end
		return
	}
	t.sources = append(t.sources, sourceRange{sub, end})
}

// inherited returns the number of records from other sessions.
func (t *Timeline) inherited() int {
	if len(t.sources) == 0 {
		return 0
	}
	return t.sources[len(t.sources)-1].end
}

// sourceOf returns the subject of a record.
func (t *Timeline) sourceOf(n int) events.Subject {
	i := sort.Search(len(t.sources), func(i int) bool { return n < t.sources[i].end })
	if i == len(t.sources) {
		return t.subject
	}
	return t.sources[i].subject
}

// Add folds the next record and returns its verdict. The fact must have passed Fact.Impossible.
func (t *Timeline) Add(f Fact) (Verdict, error) {
	if f.Offset <= t.ends.last {
		panic(fmt.Sprintf("projector: record %v after %v", f.Offset, t.ends.last))
	}
	if f.Invalid != nil {
		t.skip(f)
		return Verdict{Rejected: f.Invalid.Error()}, nil
	}
	if p, ok := f.Payload.(*events.SessionRewound); ok {
		if reason := t.cannotRewind(f, p); reason != "" {
			t.skip(f)
			return Verdict{Rejected: reason}, nil
		}
		return Verdict{}, t.rewind(f, p.To)
	}
	if reason := t.cannotList(f.Payload); reason != "" {
		t.skip(f)
		return Verdict{Rejected: reason}, nil
	}
	stale, err := t.isStale(f)
	if err != nil {
		return Verdict{}, err
	}
	n := t.Len()
	if stale {
		t.skip(f)
		t.stale = append(t.stale, recordRef{n, f.Offset})
		return Verdict{Stale: true}, nil
	}
	if reason := t.measure(n, f); reason != "" {
		t.skip(f)
		return Verdict{Rejected: reason}, nil
	}
	t.enter(f.Offset)
	if n%markEvery == 0 && n >= t.nextMark {
		t.nextMark = n + len(t.lengths) // bounds the memory of marks, however many threads there are
		t.marks = append(t.marks, mark{n, slices.Clone(t.lengths)})
	}
	return Verdict{Live: true}, nil
}

// Bounded counts the next record. If its data exceed the bound for data that are named again, it returns the fact with
// Invalid set. The caller calls it once for each record, before Fact.Impossible and Add.
func (t *Timeline) Bounded(f Fact) Fact { return t.named.bounded(f) }

// skip adds a record that does not change the list.
func (t *Timeline) skip(f Fact) {
	n := t.Len()
	list := t.chain(n - 1)
	if list != nil && list.toAt == 0 {
		list.toAt = t.ends.last
	}
	t.enter(f.Offset)
	t.points = append(t.points, point{number: n, prefix: list, open: n + 1})
}

// rewind adds a record that returns the list to its state after the last record at or below an offset.
func (t *Timeline) rewind(f Fact, to events.Offset) error {
	j, err := t.numberAt(to)
	if err != nil {
		return err
	}
	list, err := t.settled(j)
	if err != nil {
		return err
	}
	lengths, err := t.lengthsAt(j)
	if err != nil {
		return err
	}
	n := t.Len()
	t.enter(f.Offset)
	t.points = append(t.points, point{number: n, prefix: list, open: n + 1})
	t.rewinds, t.lengths = append(t.rewinds, recordRef{n, f.Offset}), lengths
	return nil
}

func (t *Timeline) cannotRewind(f Fact, p *events.SessionRewound) string {
	switch {
	case p.To >= f.Offset:
		return fmt.Sprintf("a rewind to %v, which is not below itself", p.To)
	case p.To < t.ends.first || t.Len() == 0:
		return fmt.Sprintf("a rewind to %v, before the session's first record", p.To)
	case p.Undoes != 0 && !slices.ContainsFunc(t.rewinds, func(r recordRef) bool { return r.at == p.Undoes }):
		return fmt.Sprintf("takes back %v, which is no rewind of this session", p.Undoes)
	}
	return ""
}

// numberAt returns the last record at or below an offset, or -1.
func (t *Timeline) numberAt(at events.Offset) (int, error) {
	switch {
	case at >= t.ends.last:
		return t.Len() - 1, nil
	case t.base > 0 && (len(t.offsets) == 0 || at < t.offsets[0]):
		p, err := t.older.reaching(at)
		if err != nil {
			return 0, err
		}
		return p.numberAt(at), nil
	}
	return t.newest().numberAt(at), nil
}

// offset returns the offset of a record.
func (t *Timeline) offset(n int) (events.Offset, error) {
	switch {
	case n == t.Len()-1:
		return t.ends.last, nil
	case n >= t.base:
		return t.offsets[n-t.base], nil
	}
	p, err := t.older.having(n)
	if err != nil {
		return 0, err
	}
	return p.offsets[n-p.first], nil
}

// page returns the records around a record: the records in memory, or the stored page.
func (t *Timeline) page(n int) (*page, error) {
	if n < t.base {
		return t.older.having(n)
	}
	return t.newest(), nil
}

// newest returns the records in memory.
func (t *Timeline) newest() *page { return &page{first: t.base, offsets: t.offsets, deltas: t.deltas} }

// isStale reports whether the next record is stale: its producer had read a record that a rewind has taken out of
// effect. Such a record is in the producer's list and not in the current one; those of the ledger stay in effect.
func (t *Timeline) isStale(f Fact) (bool, error) {
	basis, ok := f.Basis()
	if !ok {
		return false, nil
	}
	n, err := t.numberAt(basis)
	if err != nil {
		return false, err
	}
	last := t.lastLive(n)
	if last < 0 || t.contains(t.Len()-1, last) {
		return false, nil
	}
	return t.hasBehind(n, t.shared(n), func(delta) bool { return true })
}

// crosses reports whether the list after record n and the list after the last record differ in records of foreign
// types.
func (t *Timeline) crosses(n int) (bool, error) {
	shared := t.shared(n)
	is, err := t.hasBehind(n, shared, delta.isForeign)
	if is || err != nil {
		return is, err
	}
	return t.hasBehind(t.Len()-1, shared, delta.isForeign)
}

// hasBehind reports whether the list after record n has, behind another record, one with such a delta. Only records of
// the ledger have no deltas.
func (t *Timeline) hasBehind(n, after int, is func(delta) bool) (bool, error) {
	for c := t.chain(n); c != nil && c.to > after; c = c.prev {
		for to := c.to; to >= max(c.from, after+1); {
			p, err := t.page(to)
			if err != nil {
				return false, err
			}
			from := max(c.from, after+1, p.first)
			if slices.ContainsFunc(between(p.deltas, from, to), is) {
				return true, nil
			}
			to = from - 1
		}
	}
	return false, nil
}

// point returns the last point at or before record n.
func (t *Timeline) point(n int) point {
	return t.points[sort.Search(len(t.points), func(i int) bool { return t.points[i].number > n })-1]
}

// chain returns the list after record n. nil is the empty list.
func (t *Timeline) chain(n int) *stretch {
	if n < 0 {
		return nil
	}
	p := t.point(n)
	if p.open > n {
		return p.prefix
	}
	return &stretch{prev: p.prefix, from: p.open, to: n, fromAt: p.openAt}
}

// settled returns the list after record n, in a form that later records do not change.
func (t *Timeline) settled(n int) (c *stretch, err error) {
	c = t.chain(n)
	if c != nil && c.toAt == 0 {
		c.toAt, err = t.offset(c.to)
	}
	return c, err
}

// lastLive returns the last record of the list after record n, or -1.
func (t *Timeline) lastLive(n int) int {
	if c := t.chain(n); c != nil {
		return c.to
	}
	return -1
}

// contains reports whether record x is in the list after record n.
func (t *Timeline) contains(n, x int) bool {
	c := t.chain(n)
	for c != nil && c.from > x {
		c = c.prev
	}
	return c != nil && x <= c.to
}

// shared returns the newest record that the list after record n and the list after the last record both contain, or -1.
// Up to it the lists are the same.
func (t *Timeline) shared(n int) int {
	a, b := t.chain(n), t.chain(t.Len()-1)
	for a != nil && b != nil {
		switch to := min(a.to, b.to); {
		case to >= a.from && to >= b.from:
			return to
		case a.from > b.from:
			a = a.prev
		default:
			b = b.prev
		}
	}
	return -1
}

// stretches returns the list after record n, oldest first.
func (t *Timeline) stretches(n int) []stretch {
	var list []stretch
	for c := t.chain(n); c != nil; c = c.prev {
		if last := len(list) - 1; last >= 0 && list[last].from == c.to+1 {
			list[last].from, list[last].fromAt = c.from, c.fromAt
			continue
		}
		list = append(list, stretch{from: c.from, to: c.to, fromAt: c.fromAt, toAt: c.toAt})
	}
	slices.Reverse(list)
	return list
}

// Len returns the number of records, including inherited ones.
func (t *Timeline) Len() int { return t.base + len(t.offsets) }

// First returns the offset of the session's own first record, or 0.
func (t *Timeline) First() events.Offset { return t.ends.own }

// Last returns the offset of the session's own last record, or 0.
func (t *Timeline) Last() events.Offset {
	if t.ends.own == 0 {
		return 0
	}
	return t.ends.last
}

// At returns the last record at or below an offset, or 0.
func (t *Timeline) At(at events.Offset) (events.Offset, error) {
	n, err := t.numberAt(at)
	if n < 0 || err != nil {
		return 0, err
	}
	return t.offset(n)
}

// IsLive reports whether the record at an offset is on the branch that led to the last one. Records of the ledger that
// are on no such branch are in effect, too: see Session.InEffect.
func (t *Timeline) IsLive(at events.Offset) (bool, error) {
	n, err := t.numberAt(at)
	if n < 0 || err != nil || !t.contains(t.Len()-1, n) {
		return false, err
	}
	there, err := t.offset(n)
	return there == at, err
}

// Live returns the list in effect after the last record at or below an offset.
func (t *Timeline) Live(at events.Offset) ([]Interval, error) {
	n, err := t.numberAt(at)
	if err != nil {
		return nil, err
	}
	var list []Interval
	for _, s := range t.stretches(n) {
		if s.toAt == 0 {
			if s.toAt, err = t.offset(s.to); err != nil {
				return nil, err
			}
		}
		list = append(list, Interval{s.fromAt, s.toAt})
	}
	return list, nil
}

// LastLive returns the last offset of that list, or 0.
func (t *Timeline) LastLive(at events.Offset) (events.Offset, error) {
	n, err := t.numberAt(at)
	if err != nil {
		return 0, err
	}
	if n = t.lastLive(n); n < 0 {
		return 0, nil
	}
	return t.offset(n)
}

// liveBefore returns the last live record below an offset, or 0.
func (t *Timeline) liveBefore(at events.Offset) (events.Offset, error) {
	if at == 0 {
		return 0, nil
	}
	below, err := t.numberAt(at - 1)
	if err != nil {
		return 0, err
	}
	for c := t.chain(t.Len() - 1); c != nil; c = c.prev {
		if c.from <= below {
			return t.offset(min(c.to, below))
		}
	}
	return 0, nil
}

// Stale lists the stale records: their producers had read records that were rewound meanwhile.
func (t *Timeline) Stale() []events.Offset {
	var list []events.Offset
	for _, p := range t.stale {
		list = append(list, p.at)
	}
	return list
}

// Turns returns the number of turns in effect after the last record, over all threads.
func (t *Timeline) Turns() int { return t.lengths.sum() }

// TurnsAt returns the number of turns of a thread in effect after the last record
// at or below an offset.
func (t *Timeline) TurnsAt(thread string, at events.Offset) (int, error) {
	n, err := t.numberAt(at)
	i := t.number(thread)
	if n < 0 || i < 0 || err != nil {
		return 0, err
	}
	l, err := t.lengthsAt(n)
	return max(l.of(i), 0), err
}
