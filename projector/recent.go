package projector

import (
	"slices"

	"github.com/tallylog/tally/events"
)

// Lengths returns the threads that are in effect, with how many turns each has.
func (t *Timeline) Lengths() map[string]int {
	all := make(map[string]int)
	for i, name := range t.names {
		if n := t.lengths.of(i); n != absent {
			all[name] = n
		}
	}
	return all
}

// TurnOffset says which record brought a turn.
type TurnOffset struct {
	Thread string
	Number int // in the thread, from 1
	Offset events.Offset
}

// Newest returns the turns in effect that stand last in the log, the last one first, at
// most so many. They end at the newest turn that was moved within its thread: what a
// replacement kept or brought is left out, with all that is older in that thread.
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

// addTurns adds the turns that a record brought to a thread, of which so many are left.
func (t *Timeline) addTurns(list []TurnOffset, left lengths, d delta, at events.Offset) []TurnOffset {
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
