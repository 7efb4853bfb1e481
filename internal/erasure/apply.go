package erasure

import (
	"fmt"

	"github.com/tallylog/tally/events"
)

// Apply returns what remains of an event by its record in a plan. If the data are kept by reference, they must be in
// place. The errors are those of events.Event.Erase.
func (r Record) Apply(receipt string, e events.Event) (events.Event, error) {
	if e.Type == events.TypeUnitAppended && r.Copies != nil {
		i, next := -1, r.Copies
		out, err := e.EraseCopies(receipt, func(c events.Event) (events.Event, error) {
			if i++; len(next) == 0 || next[0].Index != i {
				return c, nil
			}
			turns := next[0].Turns
			next = next[1:]
			return Erase(c, receipt, turns)
		})
		if err == nil && len(next) > 0 {
			err = fmt.Errorf("%q has %d copies, the plan names the copy %d", e.ID, i+1, next[0].Index)
		}
		return out, err
	}
	return Erase(e, receipt, r.Turns)
}

// Erase returns an event without some turns, by their indexes, or without all content if turns is nil.
func Erase(e events.Event, receipt string, turns []int) (events.Event, error) {
	if turns == nil {
		return e.Erase(receipt)
	}
	return e.EraseTurns(receipt, turns)
}
