package projector

import (
	"slices"

	"github.com/tallylog/tally/events"
)

// Lengths returns the number of turns of each thread in effect.
func (t *Timeline) Lengths() map[string]int {
	all := make(map[string]int)
	for i, name := range t.names {
		if n := t.lengths.of(i); n != absent {
			all[name] = n
		}
	}
	return all
}

// TurnOffset names a turn and the record that added it.
type TurnOffset struct {
	Thread string
	Number int // in the thread, from 1
	Offset events.Offset
}

// Newest returns the last turns in effect, in log order from the last one, at most limit. A replacement of a thread
// ends the search in that thread: its kept and new turns, and all older ones, are left out.
func (t *Timeline) Newest(limit int) ([]TurnOffset, error) {
	left, list := slices.Clone(t.lengths), []TurnOffset(nil)
	for c := t.chain(t.Len() - 1); c != nil; c = c.prev {
		for to := c.to; to >= c.from; {
			p, err := t.page(to)
			if err != nil {
				return nil, err
			}
			from := max(c.from, p.first)
			for _, d := range slices.Backward(between(p.deltas, from, to)) {
				if list = t.addTurns(list, left, d, p.offsets[d.record-p.first]); len(list) >= limit {
					return list[:limit], nil
				}
			}
			to = from - 1
		}
	}
	return list, nil
}

// addTurns adds the turns that a record added to a thread. left is the number of turns of each thread not listed yet.
func (t *Timeline) addTurns(list []TurnOffset, left threadLengths, d delta, at events.Offset) []TurnOffset {
	switch {
	case d.thread == everyThread:
		clear(left)
		return list
	case d.set:
		left[d.thread] = 0
		return list
	}
	for range d.n {
		if left[d.thread] <= 0 {
			return list
		}
		list = append(list, TurnOffset{t.names[d.thread], left[d.thread], at})
		left[d.thread]--
	}
	return list
}
