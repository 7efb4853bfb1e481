package projector

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/tallylog/tally/events"
)

// measure records what a live record does to the threads' lengths. Whether a
// thread event is possible at its place depends on them alone; the reason why it
// is not is returned, and then nothing was changed.
func (h *History) measure(n int, p events.Payload) string {
	m := measuring{h: h, record: n}
	switch p := p.(type) {
	case *events.TurnAppended:
		m.appended(p)
	case *events.ThreadReplaced:
		m.replaced(p)
	case *events.ThreadTruncated:
		m.truncated(p)
	case *events.ThreadPinned:
		m.pinned(p.Thread, p.Pins)
	default:
		return ""
	}
	if m.void != "" {
		return m.void
	}
	for _, d := range m.deltas {
		h.lengths = d.apply(h.lengths)
	}
	h.deltas = append(h.deltas, m.deltas...)
	return ""
}

// measuring collects the deltas of one record.
type measuring struct {
	h      *History
	record int
	deltas []delta
	void   string
}

func (m *measuring) length(thread int) int {
	n := m.h.lengths.of(thread)
	for _, d := range m.deltas {
		if d.thread == thread {
			n = d.next(n)
		}
	}
	return n
}

func (m *measuring) grow(name string, by int) {
	thread := m.h.thread(name)
	if last := len(m.deltas) - 1; last >= 0 && m.deltas[last].thread == thread && !m.deltas[last].set {
		m.deltas[last].n += by
		return
	}
	m.deltas = append(m.deltas, delta{m.record, thread, false, by})
}

func (m *measuring) set(thread, n int) {
	m.deltas = append(m.deltas, delta{m.record, thread, true, n})
}

func (m *measuring) appended(p *events.TurnAppended) {
	for i := range p.Entries {
		m.grow(p.Entries[i].Thread, 1)
	}
	for _, name := range sortedKeys(p.ThreadMeta) {
		m.grow(name, 0)
	}
	for _, name := range sortedKeys(p.Pins) {
		m.pinned(name, p.Pins[name])
	}
}

func (m *measuring) replaced(p *events.ThreadReplaced) {
	names := sortedKeys(p.Threads)
	var after []int
	for _, name := range names {
		had, n := max(m.length(m.h.thread(name)), 0), 0
		for _, it := range p.Threads[name].Items {
			switch {
			case it.Keep == nil:
				n++
			case it.Keep[1] > had:
				m.refuse("keeps turns up to %d of thread %q, which has %d", it.Keep[1], name, had)
			default:
				n += it.Keep[1] - it.Keep[0]
			}
		}
		after = append(after, n)
	}
	if p.Others == "drop" {
		m.dropAll()
	}
	for i, name := range names {
		m.set(m.h.thread(name), after[i])
	}
}

func (m *measuring) truncated(p *events.ThreadTruncated) {
	if _, all := p.Lengths[events.AllThreads]; all {
		m.dropAll()
		return
	}
	for _, name := range sortedKeys(p.Lengths) {
		thread, n := m.h.thread(name), p.Lengths[name]
		switch had := max(m.length(thread), 0); {
		case n > had:
			m.refuse("truncates thread %q to %d, beyond its length of %d", name, n, had)
		case n == 0:
			m.set(thread, absent)
		default:
			m.set(thread, n)
		}
	}
}

func (m *measuring) dropAll() {
	for thread := range m.h.names {
		if m.length(thread) != absent {
			m.set(thread, absent)
		}
	}
}

func (m *measuring) pinned(name string, pins map[int]bool) {
	had := max(m.length(m.h.thread(name)), 0)
	for _, i := range sortedKeys(pins) {
		if i >= had {
			m.refuse("pins turn %d of thread %q, which has %d", i, name, had)
		}
	}
}

func (m *measuring) refuse(format string, args ...any) {
	if m.void == "" {
		m.void = fmt.Sprintf(format, args...)
	}
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	if len(m) == 0 { // as it is nearly always, for every turn
		return nil
	}
	return slices.Sorted(maps.Keys(m))
}

// thread gives the number of a thread's name.
func (h *History) thread(name string) int {
	if i := slices.Index(h.names, name); i >= 0 {
		return i
	}
	h.names = append(h.names, name)
	return len(h.names) - 1
}

func (l lengths) of(thread int) int {
	if thread < len(l) {
		return l[thread]
	}
	return absent
}

func (d delta) next(n int) int {
	if d.set {
		return d.n
	}
	return max(n, 0) + d.n
}

// apply changes l in place, or a longer copy of it.
func (d delta) apply(l lengths) lengths {
	for len(l) <= d.thread {
		l = append(l, absent)
	}
	l[d.thread] = d.next(l[d.thread])
	return l
}

// lengthsAt counts the lengths of the threads in the list after record n, from
// the newest mark in that list.
func (h *History) lengthsAt(n int) lengths {
	var l lengths
	after := -1
	for i := len(h.marks) - 1; i >= 0; i-- {
		if m := h.marks[i]; m.record <= n && h.contains(n, m.record) {
			l, after = slices.Clone(m.lengths), m.record
			break
		}
	}
	at, _ := slices.BinarySearchFunc(h.deltas, after+1, func(d delta, record int) int { return d.record - record })
	for _, s := range h.stretches(n) {
		for at < len(h.deltas) && h.deltas[at].record <= s.to {
			if h.deltas[at].record >= s.from {
				l = h.deltas[at].apply(l)
			}
			at++
		}
	}
	return l
}
