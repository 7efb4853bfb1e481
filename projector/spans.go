package projector

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sort"

	"github.com/tallylog/tally/events"
)

// strands are threads by reference: each lists its turns as spans. They are folded without the turns themselves and
// stay small: a thread that only grew is one span.
type strands map[string]*strand

// strand is one thread.
type strand struct {
	spans []span
	meta  events.Raw
}

// span is a run of turns of one source, numbered by that source for the thread; to is exclusive.
type span struct {
	source   int // index of the source session among the ancestors
	from, to int
	pin      pinning
}

// pinning is the pin state of turns.
type pinning int

const (
	asBrought pinning = iota
	pinned
	unpinned
)

// apply folds one live record of a source. first returns the number of its first turn in a thread. If History should
// have rejected the record, apply returns an error.
func (s strands) apply(f Fact, source int, first func(thread string) int) error {
	switch p := f.Payload.(type) {
	case *events.TurnAppended:
		s.appended(p, source, first)
		for _, name := range sortedKeys(p.Pins) {
			if err := s.pinned(name, p.Pins[name]); err != nil {
				return err
			}
		}
	case *events.ThreadReplaced:
		return s.replaced(p, source, first)
	case *events.ThreadTruncated:
		return s.truncated(p)
	case *events.ThreadPinned:
		return s.pinned(p.Thread, p.Pins)
	}
	return nil
}

func (s strands) strand(name string) *strand {
	st := s[name]
	if st == nil {
		st = &strand{}
		s[name] = st
	}
	return st
}

func (s strands) appended(p *events.TurnAppended, source int, first func(string) int) {
	counts := make(map[string]int, 1)
	for i := range p.Entries {
		counts[p.Entries[i].Thread]++
	}
	for name, n := range counts {
		from := first(name)
		s.strand(name).push(span{source: source, from: from, to: from + n})
	}
	for name, meta := range p.ThreadMeta {
		s.strand(name).meta = meta
	}
}

func (s strands) replaced(p *events.ThreadReplaced, source int, first func(string) int) error {
	after := make(strands, len(p.Threads))
	for name, r := range p.Threads {
		th, next := &strand{meta: r.Meta}, first(name)
		before := s[name].measured()
		for _, it := range r.Items {
			if it.Keep == nil {
				th.push(span{source: source, from: next, to: next + 1})
				next++
				continue
			}
			if it.Keep[1] > before.len() {
				return fmt.Errorf("projector: a replacement keeps turns of thread %q that do not exist", name)
			}
			before.each(it.Keep[0], it.Keep[1], th.push)
		}
		after[name] = th
	}
	if p.Others == "drop" {
		clear(s)
	}
	maps.Copy(s, after)
	return nil
}

func (s strands) truncated(p *events.ThreadTruncated) error {
	for name, n := range p.Lengths {
		th := s[name]
		switch {
		case name == events.AllThreads:
			clear(s)
		case n == 0:
			delete(s, name)
		case th == nil || n > th.len():
			return fmt.Errorf("projector: thread %q is shorter than %d", name, n)
		default:
			th.spans = th.between(0, n)
		}
	}
	return nil
}

// pinned pins and unpins turns of a thread, in one pass over the spans.
func (s strands) pinned(name string, pins map[int]bool) error {
	th, list := s[name], sortedKeys(pins)
	if n := len(list); n == 0 {
		return nil
	} else if th == nil || list[n-1] >= th.len() {
		return fmt.Errorf("projector: thread %q has no turn %d", name, list[n-1])
	}
	changed := &strand{spans: make([]span, 0, len(th.spans)+2)}
	at := 0 // index of the first turn in the rest of a span
	for _, sp := range th.spans {
		for ; len(list) > 0 && list[0] < at+sp.to-sp.from; list = list[1:] {
			turn := sp.from + list[0] - at
			changed.push(span{sp.source, sp.from, turn, sp.pin})
			changed.push(span{sp.source, turn, turn + 1, pinningOf(pins[list[0]])})
			at, sp.from = list[0]+1, turn+1
		}
		changed.push(sp)
		at += sp.to - sp.from
	}
	th.spans = changed.spans
	return nil
}

func pinningOf(on bool) pinning {
	if on {
		return pinned
	}
	return unpinned
}

// push appends a span. A span that continues the last one is merged into it, so equal threads have equal spans. An
// empty span has no effect.
func (th *strand) push(sp span) {
	if sp.from == sp.to {
		return
	}
	if last := len(th.spans) - 1; last >= 0 {
		if l := &th.spans[last]; l.source == sp.source && l.pin == sp.pin && l.to == sp.from {
			l.to = sp.to
			return
		}
	}
	th.spans = append(th.spans, sp)
}

// cut returns the threads with the lengths that a timeline has for them.
func (s strands) cut(t *Timeline, lengths threadLengths) strands {
	c := make(strands, len(s))
	for name, th := range s {
		if n := lengths.of(t.number(name)); n != absent {
			c[name] = &strand{th.between(0, n), th.meta}
		}
	}
	return c
}

// sorted returns the turns of a strand as spans that ascend and do not overlap. A nil strand has no turns.
func (th *strand) sorted() (list []span) {
	if th == nil {
		return nil
	}
	byTurn := func(a, b span) int { return cmp.Or(cmp.Compare(a.source, b.source), cmp.Compare(a.from, b.from)) }
	for _, sp := range slices.SortedFunc(slices.Values(th.spans), byTurn) {
		if last := len(list) - 1; last >= 0 && list[last].source == sp.source && sp.from <= list[last].to {
			list[last].to = max(list[last].to, sp.to)
			continue
		}
		list = append(list, sp)
	}
	return list
}

func (th *strand) len() int {
	n := 0
	for _, sp := range th.spans {
		n += sp.to - sp.from
	}
	return n
}

// between returns the spans of the turns with from <= number < to, in a new list.
func (th *strand) between(from, to int) (list []span) {
	th.measured().each(from, to, func(sp span) { list = append(list, sp) })
	return list
}

// measuredStrand finds turns of a strand by number.
type measuredStrand struct {
	spans []span
	ends  []int // number of the turn after each span
}

// measured returns the strand for look-ups. A nil strand has no turns.
func (th *strand) measured() measuredStrand {
	if th == nil {
		return measuredStrand{}
	}
	m := measuredStrand{th.spans, make([]int, len(th.spans))}
	at := 0
	for i, sp := range th.spans {
		at += sp.to - sp.from
		m.ends[i] = at
	}
	return m
}

func (m measuredStrand) len() int {
	if len(m.ends) == 0 {
		return 0
	}
	return m.ends[len(m.ends)-1]
}

// each calls take with the spans of the turns with from <= number < to.
func (m measuredStrand) each(from, to int, take func(span)) {
	i := sort.SearchInts(m.ends, from+1)
	for ; i < len(m.spans); i++ {
		sp := m.spans[i]
		at := m.ends[i] - (sp.to - sp.from)
		a, b := max(from, at), min(to, m.ends[i])
		if a >= b {
			return
		}
		take(span{sp.source, sp.from + a - at, sp.from + b - at, sp.pin})
	}
}

// lengths returns the lengths of the threads in the order of names.
func (s strands) lengths(names []string) threadLengths {
	l := make(threadLengths, len(names))
	for i, name := range names {
		l[i] = absent
		if th := s[name]; th != nil {
			l[i] = th.len()
		}
	}
	return l
}

// counts returns the lengths of the threads by name.
func (s strands) counts() map[string]int {
	l := make(map[string]int, len(s))
	for name, th := range s {
		l[name] = th.len()
	}
	return l
}

// strandState is the stored form of a strand.
type strandState struct {
	Spans [][4]int   `json:"spans"` // source, from, to, pinning
	Meta  events.Raw `json:"meta,omitempty"`
}

func (s strands) state() map[string]strandState {
	st := make(map[string]strandState, len(s))
	for name, th := range s {
		spans := make([][4]int, len(th.spans))
		for i, sp := range th.spans {
			spans[i] = [4]int{sp.source, sp.from, sp.to, int(sp.pin)}
		}
		st[name] = strandState{spans, th.meta}
	}
	return st
}

// strandsOf decodes the output of state. sources is the number of sources.
func strandsOf(st map[string]strandState, sources int) (strands, error) {
	s := make(strands, len(st))
	for name, th := range st {
		if th.Spans == nil {
			return nil, fmt.Errorf("thread %q has no spans", name)
		}
		back := &strand{meta: th.Meta}
		for _, v := range th.Spans {
			sp := span{v[0], v[1], v[2], pinning(v[3])}
			if sp.source < 0 || sp.source >= sources || sp.from < 0 || sp.to <= sp.from || sp.pin < asBrought || sp.pin > unpinned {
				return nil, fmt.Errorf("thread %q has the span %v", name, v)
			}
			back.spans = append(back.spans, sp)
		}
		s[name] = back
	}
	return s, nil
}
