package projector

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/snapshot"
)

// SessionFold names the fold of sessions in snapshots. Snapshots of this name are the heads. The version changes
// whenever the fold or the format of its state changes, including the format of chunks.
const (
	SessionFold        = "session"
	SessionFoldVersion = 10
)

// state is a session in its folded and stored form. Its older records are in chunks, and its threads refer to turns.
// The costs are in the chunks as well, not in the ledger.
type state struct {
	subject  events.Subject
	history  *Timeline
	strands  strands
	ledger   *Ledger
	damaged  []events.Offset
	sources  []*table  // tables of the strands' turns: the ancestors, oldest first, and the session itself
	segments []segment // inherited records
	sizes    sizes

	// behind is set when the strands no longer match the live list.
	behind bool

	// odd is the number of the newest record that was live when it came and did more to threads than add turns, or -1.
	// Without such a record between two lists of which one begins the other, they differ in the lengths of threads only.
	odd int
}

// segment is a run of inherited records, by their numbers in a source.
type segment struct {
	source       int
	from, to     int // both inclusive
	first        int // number in the session's history of the record from
	fromAt, toAt events.Offset
}

func newState(sub events.Subject, s sizes) *state {
	return &state{subject: sub, history: NewTimeline(sub), strands: make(strands), ledger: newLedger(sub), sources: []*table{newTable(sub)}, sizes: s, odd: -1}
}

// own returns the table of the session's own records.
func (s *state) own() *table { return s.sources[len(s.sources)-1] }

func (s *state) offset() events.Offset { return s.history.Last() }

// apply folds the next record. If the strands are needed and behind, it calls resolve.
func (s *state) apply(f Fact, resolve func() error) error {
	own, rewound, n := s.own(), len(s.ledger.Rewinds), s.history.Len()
	f = s.history.Bounded(f)
	shortens, err := s.shortens(f)
	if err != nil {
		return err
	}
	v, err := foldNext(s.history, s.ledger, f)
	if err != nil {
		return err
	}
	if v.Live && isOdd(f.Payload) {
		s.odd = n
	}
	own.open.add(f, own.next)
	s.ledger.forgetCosts() // the chunk holds them
	switch {
	case len(s.ledger.Rewinds) > rewound && shortens:
		s.strands = s.strands.cut(s.history, s.history.lengths)
	case len(s.ledger.Rewinds) > rewound:
		s.behind = true
	case v.Live && !s.behind:
		if err := s.strands.apply(f, len(s.sources)-1, func(name string) int { return own.open.firstOf(name, f.Offset) }); err != nil {
			return err
		}
	}
	if !own.open.full(s.sizes) {
		return nil
	}
	if err := resolve(); err != nil {
		return err
	}
	own.close(s.mark(own.open))
	return nil
}

// isOdd reports whether a record with a payload does more to threads than add turns.
func isOdd(p events.Payload) bool {
	switch p := p.(type) {
	case *events.ThreadReplaced, *events.ThreadTruncated, *events.ThreadPinned:
		return true
	case *events.TurnAppended:
		return len(p.Pins)+len(p.ThreadMeta) > 0
	}
	return false
}

// shortens reports whether the next record, if it is an effective rewind, returns to a list with which the live one
// begins, and all records behind that list only added turns. Then the threads only become shorter.
func (s *state) shortens(f Fact) (bool, error) {
	p, is := f.Payload.(*events.SessionRewound)
	if !is || s.behind || f.Invalid != nil {
		return false, nil
	}
	n, err := s.history.numberAt(p.To)
	if err != nil {
		return false, err
	}
	last := s.history.lastLive(n)
	return last >= s.odd && s.history.contains(s.history.Len()-1, last), nil
}

// mark returns the threads after a chunk, or their lengths if the threads are too large. It returns nil if the last
// live record is not in the chunk, or if there are too many threads.
func (s *state) mark(c *chunkContent) *strandsMark {
	last := s.history.lastLive(s.history.Len()-1) - s.history.inherited()
	if last < c.first || last >= c.end() {
		return nil
	}
	for _, m := range []*strandsMark{{Record: last, Threads: s.strands.state()}, {Record: last, Lengths: s.strands.counts()}} {
		if data, err := rawjson.Marshal(m); err == nil && len(data) <= maxMark {
			return m
		}
	}
	return nil
}

// inherit starts a fork with the state of its parent.
func (s *state) inherit(parent *state) {
	h, p := s.history, parent.history
	sealed := slices.Clone(parent.sources)
	own := parent.own()
	sealed[len(sealed)-1] = own.sealed(parent.mark(own.open))
	s.sources = append(sealed, s.sources...)
	for _, st := range p.stretches(p.Len() - 1) {
		if st.toAt == 0 { // the stretch ends with the last record
			st.toAt = p.ends.last
		}
		for _, seg := range parent.segmentsOf(st) {
			seg.first = h.base
			s.segments = append(s.segments, seg)
			h.base += seg.to - seg.from + 1
			h.addSource(parent.sources[seg.source].subject, h.base)
		}
	}
	if n := len(s.segments); n > 0 {
		h.ends.first, h.ends.last = s.segments[0].fromAt, s.segments[n-1].toAt
		h.points[0].openAt = h.ends.first
	}
	h.names, h.lengths = slices.Clone(p.names), slices.Clone(p.lengths)
	s.strands = parent.strands
	if parent.odd >= 0 {
		s.odd = h.base - 1
	}
	s.damaged = append(s.damaged, parent.damaged...)
}

// segmentsAfter returns the list after record n as records of the session's sources.
func (s *state) segmentsAfter(n int) (list []segment) {
	for _, st := range s.history.stretches(n) {
		list = append(list, s.segmentsOf(st)...)
	}
	return list
}

// segmentsOf returns a stretch of the session's history as records of its sources.
func (s *state) segmentsOf(st stretch) []segment {
	var list []segment
	cut := func(seg segment) {
		from, to := max(st.from, seg.first), min(st.to, seg.first+seg.to-seg.from)
		if from > to {
			return
		}
		part := segment{source: seg.source, from: seg.from + from - seg.first, to: seg.from + to - seg.first, first: from, fromAt: seg.fromAt, toAt: seg.toAt}
		if from == st.from {
			part.fromAt = st.fromAt
		}
		if to == st.to {
			part.toAt = st.toAt
		}
		list = append(list, part)
	}
	for _, seg := range s.segments {
		cut(seg)
	}
	cut(s.ownSegment())
	return list
}

// ownSegment returns the run of the session's own records.
func (s *state) ownSegment() segment {
	h := s.history
	return segment{source: len(s.sources) - 1, to: h.Len() - h.inherited() - 1, first: h.inherited(), fromAt: h.ends.own, toAt: h.ends.last}
}

// save stores the unsaved chunks of the tables, and drops them from memory.
func (s *state) save(ctx context.Context, into sink) error {
	for i, t := range s.sources {
		err := t.save(ctx, s.sizes, into, func(e *entry) {
			if i == len(s.sources)-1 {
				s.history.forget(s.history.inherited() + e.First + e.Records)
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// headState is the stored form of a state.
type headState struct {
	Subject  string                 `json:"subject"` // NATS subject
	Names    []string               `json:"names"`
	Ends     [3]events.Offset       `json:"ends"` // first, first own and last offset
	Points   []byte                 `json:"points,omitempty"`
	Stale    []byte                 `json:"late,omitempty"`
	Rewinds  []byte                 `json:"rewinds,omitempty"`
	Sources  []tableState           `json:"sources"`
	Segments [][6]int64             `json:"segments,omitempty"`
	Threads  map[string]strandState `json:"threads"`
	Ledger   *Ledger                `json:"ledger"`
	Odd      int                    `json:"odd"`
	Open     chunkState             `json:"open"`
	Named    map[string]int64       `json:"named,omitempty"` // named.sizes
	Again    int64                  `json:"again,omitempty"` // named.again
}

type tableState struct {
	Subject string     `json:"subject"`
	Levels  [][]*entry `json:"levels,omitempty"`
}

// encode encodes the head. Equal sessions produce equal bytes, on every machine. Everything outside the head must be
// stored already.
func (s *state) encode() ([]byte, error) {
	h := s.history
	st := headState{Subject: s.subject.NATS(), Names: h.names, Ends: [3]events.Offset{h.ends.first, h.ends.own, h.ends.last},
		Stale: appendRefs(nil, h.stale), Rewinds: appendRefs(nil, h.rewinds), Threads: s.strands.state(),
		Ledger: s.ledger, Odd: s.odd, Open: s.own().open.state(), Named: h.named.sizes, Again: h.named.again}
	if st.Names == nil {
		st.Names = []string{}
	}
	for _, p := range h.points {
		last, at := p.last(), events.Offset(0)
		if p.prefix != nil {
			at = p.prefix.toAt
		}
		st.Points = appendInts(st.Points, p.number, last, int(p.openAt), int(at))
	}
	for _, t := range s.sources {
		st.Sources = append(st.Sources, tableState{t.subject.NATS(), t.levels})
	}
	for _, g := range s.segments {
		st.Segments = append(st.Segments, [6]int64{int64(g.source), int64(g.from), int64(g.to), int64(g.first), int64(g.fromAt), int64(g.toAt)})
	}
	data, err := rawjson.Marshal(st)
	if err != nil {
		return nil, fmt.Errorf("projector: encode %s: %v", s.subject.Name(), err)
	}
	return data, nil
}

func appendRefs(b []byte, list []recordRef) []byte {
	for _, p := range list {
		b = appendInts(b, p.number, int(p.at))
	}
	return b
}

// errDamaged reports that a session has unreadable records.
var errDamaged = errors.New("the session has damaged records")

// snapshot returns the head as a snapshot. A session with damaged records has no snapshot, because it would hide them.
func (s *state) snapshot(kept string) (snapshot.Snapshot, error) {
	if len(s.damaged) > 0 {
		return snapshot.Snapshot{}, errDamaged
	}
	data, err := s.encode()
	if err != nil {
		return snapshot.Snapshot{}, err
	}
	m := snapshot.Meta{Subject: s.subject, Fold: SessionFold, Version: SessionFoldVersion, Offset: s.offset(), EventID: s.ledger.LastID, Kept: kept}
	live, err := s.history.Live(s.offset())
	for _, i := range live {
		m.Live = append(m.Live, snapshot.Interval(i))
	}
	return snapshot.Snapshot{Meta: m, Data: data}, err
}

// decodeState decodes the output of encode.
func decodeState(data []byte, z sizes) (*state, error) {
	var st headState
	if err := rawjson.Unmarshal(data, &st); err != nil {
		return nil, fmt.Errorf("projector: decode session: %v", err)
	}
	sub, err := events.ParseNATS(st.Subject)
	if err != nil {
		return nil, fmt.Errorf("projector: decode session: %v", err)
	}
	s := &state{subject: sub, history: NewTimeline(sub), ledger: st.Ledger, sizes: z, odd: st.Odd}
	for _, part := range []func(headState) error{s.readSources, s.readHistory, s.readThreads, s.readLedger} {
		if err := part(st); err != nil {
			return nil, fmt.Errorf("projector: decode %s: %v", sub.Name(), err)
		}
	}
	return s, nil
}

func (s *state) readSources(st headState) error {
	for _, ts := range st.Sources {
		sub, err := events.ParseNATS(ts.Subject)
		if err != nil {
			return err
		}
		t := newTable(sub)
		t.levels = ts.Levels
		var all []*entry
		for _, level := range slices.Backward(t.levels) {
			all = append(all, level...)
		}
		if err := checkEntries(all); err != nil {
			return err
		}
		if n := len(all); n > 0 {
			t.open.first = all[n-1].First + all[n-1].Records
			if all[0].First != 0 {
				return errors.New("a table has no beginning")
			}
		}
		for _, e := range all {
			if err := t.follow(e.Turns); err != nil {
				return err
			}
		}
		s.sources = append(s.sources, t)
	}
	if len(s.sources) == 0 || s.own().subject != s.subject {
		return errors.New("it has no table of its own")
	}
	open, err := st.Open.chunk()
	if err != nil {
		return err
	}
	if open.first != s.own().open.first {
		return errors.New("the open chunk does not follow the others")
	}
	s.own().open = open
	if err := s.own().follow(open.numbered()); err != nil {
		return err
	}
	for _, v := range st.Segments {
		seg := segment{int(v[0]), int(v[1]), int(v[2]), int(v[3]), events.Offset(v[4]), events.Offset(v[5])}
		if seg.source < 0 || seg.source >= len(s.sources)-1 || seg.from < 0 || seg.to < seg.from || seg.to >= s.sources[seg.source].open.first || seg.first != s.history.base || seg.fromAt == 0 {
			return errors.New("segments of inherited records are invalid")
		}
		s.segments = append(s.segments, seg)
		s.history.base += seg.to - seg.from + 1
		s.history.addSource(s.sources[seg.source].subject, s.history.base)
	}
	return nil
}

func (s *state) readHistory(st headState) error {
	h, open := s.history, s.own().open
	h.names, h.named = st.Names, named{again: st.Again}
	for sum, size := range st.Named {
		h.named.add(sum, size)
	}
	inherited := h.base
	h.base += open.first
	h.offsets = slices.Clone(open.offsets)
	h.ends = ends{st.Ends[0], st.Ends[1], st.Ends[2]}
	n := h.Len()
	if n == 0 || h.ends.first == 0 || h.ends.last < h.ends.first || (h.ends.own == 0) != (n == inherited) || len(open.offsets) > 0 && h.ends.last != open.offsets[len(open.offsets)-1] {
		return errors.New("numbers and offsets of its records contradict each other")
	}
	if st.Odd < -1 || st.Odd >= n {
		return fmt.Errorf("it has no record %d", st.Odd)
	}
	h.points = nil
	d := &decoder{b: st.Points}
	for d.more() {
		number, end := d.int(), d.int()
		p := point{number: number, open: number + 1, openAt: events.Offset(d.int())}
		toAt := events.Offset(d.int())
		switch last := len(h.points) - 1; {
		case d.err != nil:
			return d.err
		case last < 0 && (number != -1 || end != -1):
			return errors.New("there is no first point")
		case last >= 0 && (number <= h.points[last].number || number >= n || end < -1 || end >= number):
			return errors.New("points do not ascend")
		case last >= 0:
			p.prefix = h.chain(end)
		}
		if p.prefix != nil && p.prefix.toAt == 0 {
			p.prefix.toAt = toAt
		}
		h.points = append(h.points, p)
	}
	if len(h.points) == 0 {
		return errors.New("there is no first point")
	}
	var err error
	if h.stale, err = readRefs(st.Stale, n); err == nil {
		h.rewinds, err = readRefs(st.Rewinds, n)
	}
	if err != nil {
		return err
	}
	h.deltas = h.deltasOf(open, 0, open.end(), inherited)
	return nil
}

// readRefs decodes the output of appendRefs. The numbers are below n.
func readRefs(b []byte, n int) ([]recordRef, error) {
	var list []recordRef
	for d := (&decoder{b: b}); d.more(); {
		p := recordRef{d.int(), events.Offset(d.int())}
		if d.err != nil {
			return nil, d.err
		}
		if p.number < 0 || p.number >= n || len(list) > 0 && p.number <= list[len(list)-1].number {
			return nil, errors.New("stale records or rewinds do not ascend")
		}
		list = append(list, p)
	}
	return list, nil
}

func (s *state) readThreads(st headState) error {
	var err error
	if s.strands, err = strandsOf(st.Threads, len(s.sources)); err != nil {
		return err
	}
	for name, th := range s.strands {
		if s.history.number(name) < 0 {
			return fmt.Errorf("thread %q has no history", name)
		}
		for _, sp := range th.spans {
			if sp.to > s.sources[sp.source].next[name] {
				return fmt.Errorf("thread %q has turns that no chunk has", name)
			}
		}
	}
	h := s.history
	h.lengths = s.strands.lengths(h.names)
	if last := h.lastLive(h.Len() - 1); last >= h.base {
		h.marks = append(h.marks, mark{last, slices.Clone(h.lengths)})
	}
	return nil
}

func (s *state) readLedger(headState) error {
	l := s.ledger
	if l == nil || l.Kind == "" || slices.Contains(l.Runs, nil) || slices.Contains(l.Checkpoints, nil) {
		return errors.New("a part is missing")
	}
	if !slices.EqualFunc(s.history.rewinds, l.Rewinds, func(p recordRef, r Rewind) bool { return p.at == r.Offset }) {
		return errors.New("history and ledger have other rewinds")
	}
	l.index()
	return nil
}
