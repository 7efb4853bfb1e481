package projector

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/tallylog/tally/events"
)

// effect is a record's change to the length of a thread, as far as the record alone determines it.
type effect struct {
	thread string // events.AllThreads: all existing threads
	set    bool   // set the length to n, else add n
	n      int
}

// Effects of records that change no length, but that a rewind takes out of effect: of foreign types if they are
// registered so, which the record does not say.
var (
	foreign = effect{thread: events.AllThreads}
	pins    = effect{thread: events.AllThreads, n: 1}
)

// effectsOf lists the changes of a record to the lengths of threads, in order. The list is empty for events of the
// ledger, and for no others.
func effectsOf(f Fact) []effect {
	list := changesOf(f.Payload)
	switch {
	case len(list) == 0 && events.IsThread(f.Type):
		return []effect{pins}
	case !events.IsKnown(f.Type):
		return []effect{foreign}
	}
	return list
}

// changesOf lists the changes of a payload to the lengths of threads, in order.
func changesOf(p events.Payload) []effect {
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
			list = append(list, effect{name, true, lengthOf(p.Threads[name])})
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

// measure applies a live record's changes to the threads' lengths. These lengths alone decide whether a thread event is
// possible. If it is not, measure returns the reason and changes nothing.
func (t *Timeline) measure(n int, f Fact) string {
	if reason := t.cannotApply(f.Payload); reason != "" {
		return reason
	}
	for _, e := range effectsOf(f) {
		d := delta{n, t.threadOf(e.thread), e.set, e.n}
		t.lengths = d.apply(t.lengths)
		t.deltas = append(t.deltas, d)
	}
	return ""
}

// had returns the number of turns of a thread after the last record.
func (t *Timeline) had(name string) int { return max(t.lengths.of(t.number(name)), 0) }

// maxTurns is events.MaxTurns. Tests lower it.
var maxTurns = events.MaxTurns

// cannotApply returns why a thread event is impossible after the last record, or "".
func (t *Timeline) cannotApply(p events.Payload) string {
	switch p := p.(type) {
	case *events.TurnAppended:
		return t.cannotAppend(p)
	case *events.ThreadReplaced:
		return t.cannotReplace(p)
	case *events.ThreadTruncated:
		for _, name := range sortedKeys(p.Lengths) {
			if n := p.Lengths[name]; name != events.AllThreads && n > t.had(name) {
				return fmt.Sprintf("truncates thread %q to %d, beyond its length of %d", name, n, t.had(name))
			}
		}
	case *events.ThreadPinned:
		return cannotPin(p.Thread, t.had(p.Thread), p.Pins)
	}
	return ""
}

func (t *Timeline) cannotAppend(p *events.TurnAppended) string {
	more := make(map[string]int, 1)
	for i := range p.Entries {
		more[p.Entries[i].Thread]++
	}
	for _, name := range sortedKeys(more) {
		if n := t.had(name) + more[name]; n > maxTurns {
			return tooLong(name, n)
		}
	}
	for _, name := range sortedKeys(p.Pins) {
		if reason := cannotPin(name, t.had(name)+more[name], p.Pins[name]); reason != "" {
			return reason
		}
	}
	return ""
}

func (t *Timeline) cannotReplace(p *events.ThreadReplaced) string {
	for _, name := range sortedKeys(p.Threads) {
		had := t.had(name)
		for _, it := range p.Threads[name].Items {
			if it.Keep != nil && it.Keep[1] > had {
				return fmt.Sprintf("keeps turns up to %d of thread %q, which has %d", it.Keep[1], name, had)
			}
		}
		if n := lengthOf(p.Threads[name]); n > maxTurns {
			return tooLong(name, n)
		}
	}
	return ""
}

func cannotPin(name string, n int, pins map[int]bool) string {
	for _, i := range sortedKeys(pins) {
		if i >= n {
			return fmt.Sprintf("pins turn %d of thread %q, which has %d", i, name, n)
		}
	}
	return ""
}

func tooLong(name string, n int) string {
	return fmt.Sprintf("thread %q would have %d turns, at most %d are allowed", name, n, maxTurns)
}

// lengthOf returns the number of turns of a replacement.
func lengthOf(r events.Replacement) int {
	n := 0
	for _, it := range r.Items {
		if it.Keep == nil {
			n++
		} else {
			n += it.Keep[1] - it.Keep[0]
		}
	}
	return n
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	if len(m) == 0 { // the common case, for every turn
		return nil
	}
	return slices.Sorted(maps.Keys(m))
}

// threadOf returns the number of a thread's name. events.AllThreads has the number everyThread.
func (t *Timeline) threadOf(name string) int {
	if name == events.AllThreads {
		return everyThread
	}
	i := t.number(name)
	if i < 0 {
		i = len(t.names)
		t.names = append(t.names, name)
		if t.numbers != nil {
			t.numbers[name] = i
		}
	}
	return i
}

// fewNames is the number of threads up to which a linear search by name is fastest.
const fewNames = 16

// number returns the number of a thread, or -1.
func (t *Timeline) number(name string) int {
	if len(t.names) <= fewNames {
		return slices.Index(t.names, name)
	}
	if t.numbers == nil {
		t.numbers = make(map[string]int, len(t.names))
		for i, name := range t.names {
			t.numbers[name] = i
		}
	}
	if i, ok := t.numbers[name]; ok {
		return i
	}
	return -1
}

func (l threadLengths) of(thread int) int {
	if thread >= 0 && thread < len(l) {
		return l[thread]
	}
	return absent
}

// everywhere reports whether the delta ends all threads, or changes none.
func (d delta) everywhere() bool {
	return d.thread == everyThread && (d.set && d.n == absent || d.isForeign() || !d.set && d.n == pins.n)
}

// isForeign reports whether the delta is that of a record of a foreign type.
func (d delta) isForeign() bool { return d.thread == everyThread && !d.set && d.n == foreign.n }

func (d delta) next(n int) int {
	if d.set {
		return d.n
	}
	return max(n, 0) + d.n
}

// apply changes l in place, or a longer copy of it, and returns the result.
func (d delta) apply(l threadLengths) threadLengths {
	if d.thread == everyThread && !d.set {
		return l
	}
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

// lengthsAt computes the lengths of the threads in the list after record n, starting from the newest mark in that list.
func (t *Timeline) lengthsAt(n int) (threadLengths, error) {
	var l threadLengths
	after := -1
	for i := len(t.marks) - 1; i >= 0; i-- {
		if m := t.marks[i]; m.record <= n && t.contains(n, m.record) {
			l, after = slices.Clone(m.lengths), m.record
			break
		}
	}
	list := t.stretches(n)
	if after < 0 && t.base > 0 {
		var err error
		if l, err = t.olderLengths(list); err != nil {
			return nil, err
		}
		after = t.base - 1
	}
	for _, s := range list {
		l = l.after(between(t.deltas, max(s.from, after+1), s.to))
	}
	return l, nil
}

// olderLengths computes the lengths of the threads in the part of a list below the base, starting from the newest mark
// in it.
func (t *Timeline) olderLengths(list []stretch) (l threadLengths, err error) {
	var parts [][]delta // newest first
	for _, s := range slices.Backward(list) {
		for to := min(s.to, t.base-1); to >= s.from && l == nil; {
			p, err := t.older.having(to)
			if err != nil {
				return nil, err
			}
			from := max(s.from, p.first)
			if m := p.mark; m != nil && m.record >= from && m.record <= to {
				l, from = append(threadLengths{}, m.lengths...), m.record+1
			}
			parts = append(parts, between(p.deltas, from, to))
			to = from - 1
		}
	}
	for _, part := range slices.Backward(parts) {
		l = l.after(part)
	}
	return l, nil
}

// after returns the lengths after deltas. It may change l.
func (l threadLengths) after(deltas []delta) threadLengths {
	for _, d := range deltas {
		l = d.apply(l)
	}
	return l
}

// between returns the deltas of the records between two numbers, both inclusive.
func between(deltas []delta, from, to int) []delta {
	i, j := firstDelta(deltas, from), firstDelta(deltas, to+1)
	return deltas[i:max(i, j)]
}

// firstDelta returns the index of the first delta of a record or a later one.
func firstDelta(deltas []delta, record int) int {
	at, _ := slices.BinarySearchFunc(deltas, record, func(d delta, record int) int { return d.record - record })
	return at
}
