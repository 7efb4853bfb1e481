package projector

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/tallylog/tally/events"
)

// effect is what a record does to the length of a thread, as far as that stands in
// the record alone.
type effect struct {
	thread string // events.AllThreads: every one there is
	set    bool   // to n, else n more
	n      int
}

// effectsOf lists what a payload does to the lengths of threads, in order.
func effectsOf(p events.Payload) []effect {
	var list []effect
	switch p := p.(type) {
	case *events.TurnAppended:
		for i := range p.Entries {
			list = grown(list, p.Entries[i].Thread, 1)
		}
		for _, name := range sortedKeys(p.ThreadMeta) {
			list = grown(list, name, 0)
		}
	case *events.ThreadReplaced:
		if p.Others == "drop" {
			list = append(list, effect{events.AllThreads, true, absent})
		}
		for _, name := range sortedKeys(p.Threads) {
			n := 0
			for _, it := range p.Threads[name].Items {
				if it.Keep == nil {
					n++
				} else {
					n += it.Keep[1] - it.Keep[0]
				}
			}
			list = append(list, effect{name, true, n})
		}
	case *events.ThreadTruncated:
		if _, all := p.Lengths[events.AllThreads]; all {
			return []effect{{events.AllThreads, true, absent}}
		}
		for _, name := range sortedKeys(p.Lengths) {
			n := p.Lengths[name]
			if n == 0 {
				n = absent
			}
			list = append(list, effect{name, true, n})
		}
	}
	return list
}

func grown(list []effect, name string, by int) []effect {
	if last := len(list) - 1; last >= 0 && list[last].thread == name && !list[last].set {
		list[last].n += by
		return list
	}
	return append(list, effect{name, false, by})
}

// measure records what a live record does to the threads' lengths. Whether a
// thread event is possible at its place depends on them alone; the reason why it
// is not is returned, and then nothing was changed.
func (h *History) measure(n int, p events.Payload) string {
	if reason := h.cannotApply(p); reason != "" {
		return reason
	}
	for _, e := range effectsOf(p) {
		d := delta{n, h.threadOf(e.thread), e.set, e.n}
		h.lengths = d.apply(h.lengths)
		h.deltas = append(h.deltas, d)
	}
	return ""
}

// cannotApply says why a thread event is impossible after the last record; "" if
// it is possible.
func (h *History) cannotApply(p events.Payload) string {
	had := func(name string) int { return max(h.lengths.of(slices.Index(h.names, name)), 0) }
	cannotPin := func(name string, n int, pins map[int]bool) string {
		for _, i := range sortedKeys(pins) {
			if i >= n {
				return fmt.Sprintf("pins turn %d of thread %q, which has %d", i, name, n)
			}
		}
		return ""
	}
	switch p := p.(type) {
	case *events.TurnAppended:
		for _, name := range sortedKeys(p.Pins) {
			n := had(name)
			for i := range p.Entries {
				if p.Entries[i].Thread == name {
					n++
				}
			}
			if reason := cannotPin(name, n, p.Pins[name]); reason != "" {
				return reason
			}
		}
	case *events.ThreadReplaced:
		for _, name := range sortedKeys(p.Threads) {
			for _, it := range p.Threads[name].Items {
				if it.Keep != nil && it.Keep[1] > had(name) {
					return fmt.Sprintf("keeps turns up to %d of thread %q, which has %d", it.Keep[1], name, had(name))
				}
			}
		}
	case *events.ThreadTruncated:
		for _, name := range sortedKeys(p.Lengths) {
			if n := p.Lengths[name]; name != events.AllThreads && n > had(name) {
				return fmt.Sprintf("truncates thread %q to %d, beyond its length of %d", name, n, had(name))
			}
		}
	case *events.ThreadPinned:
		return cannotPin(p.Thread, had(p.Thread), p.Pins)
	}
	return ""
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	if len(m) == 0 { // as it is nearly always, for every turn
		return nil
	}
	return slices.Sorted(maps.Keys(m))
}

// threadOf returns the number of a thread's name, everyThread for that of all.
func (h *History) threadOf(name string) int {
	if name == events.AllThreads {
		return everyThread
	}
	if i := slices.Index(h.names, name); i >= 0 {
		return i
	}
	h.names = append(h.names, name)
	return len(h.names) - 1
}

func (l lengths) of(thread int) int {
	if thread >= 0 && thread < len(l) {
		return l[thread]
	}
	return absent
}

// everywhere reports whether the delta ends all threads.
func (d delta) everywhere() bool { return d.thread == everyThread && d.set && d.n == absent }

func (d delta) next(n int) int {
	if d.set {
		return d.n
	}
	return max(n, 0) + d.n
}

// apply changes l in place, or a longer copy of it.
func (d delta) apply(l lengths) lengths {
	if d.thread == everyThread {
		for i := range l {
			l[i] = absent
		}
		return l
	}
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
	list := h.stretches(n)
	if after < 0 && h.base > 0 {
		l, after = h.elderLengths(list), h.base-1
	}
	for _, s := range list {
		for _, d := range between(h.deltas, max(s.from, after+1), s.to) {
			l = d.apply(l)
		}
	}
	return l
}

// elderLengths counts the lengths of the threads in the part of a list that is
// below the base, from the newest mark in it.
func (h *History) elderLengths(list []stretch) (l lengths) {
	var parts [][]delta // newest first
	defer func() {
		for _, part := range slices.Backward(parts) {
			for _, d := range part {
				l = d.apply(l)
			}
		}
	}()
	for _, s := range slices.Backward(list) {
		for to := min(s.to, h.base-1); to >= s.from; {
			b := h.elder.block(to)
			from := max(s.from, b.first)
			if m := b.mark; m != nil && m.record >= from && m.record <= to {
				l = slices.Clone(m.lengths)
				parts = append(parts, between(b.deltas, m.record+1, to))
				return l
			}
			parts = append(parts, between(b.deltas, from, to))
			to = from - 1
		}
	}
	return l
}

// between returns the deltas of the records from one number to another, both
// inclusive.
func between(deltas []delta, from, to int) []delta {
	i, j := firstDelta(deltas, from), firstDelta(deltas, to+1)
	return deltas[i:max(i, j)]
}

// firstDelta returns the place of the first delta of a record or a later one.
func firstDelta(deltas []delta, record int) int {
	at, _ := slices.BinarySearchFunc(deltas, record, func(d delta, record int) int { return d.record - record })
	return at
}
