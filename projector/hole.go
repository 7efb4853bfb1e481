package projector

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tallylog/tally/events"
)

// A HoleError says that records of a session or document cannot be read. It comes together with
// what was made of the others: who shows that names the records, and who decides by it refuses.
// It unwraps to the *events.DamageError of the first of them.
type HoleError struct {
	Subject events.Subject
	Damaged []events.Offset // in their order, at least one
}

func (e *HoleError) Error() string {
	if n := len(e.Damaged); n > 1 {
		return fmt.Sprintf("%s: %d records cannot be read: %v", e.Subject, n, e.Damaged)
	}
	return fmt.Sprintf("%s: damaged record %v", e.Subject, e.Damaged[0])
}

// Unwrap returns the damage of the first record.
func (e *HoleError) Unwrap() error { return &events.DamageError{Offset: e.Damaged[0]} }

// HoleOf returns the error of a subject of which records cannot be read, nil if there are none.
func HoleOf(sub events.Subject, damaged []events.Offset) error {
	if len(damaged) == 0 {
		return nil
	}
	list := slices.Clone(damaged)
	slices.Sort(list)
	return &HoleError{sub, slices.Compact(list)}
}

// Refuse returns a *HoleError in a form that Tolerate does not take for one: there is nothing beside
// it to go on with. It unwraps to the *events.DamageError of the first record; any other error stays
// as it is.
func Refuse(err error) error {
	if hole, is := errors.AsType[*HoleError](err); is {
		return &refused{hole}
	}
	return err
}

type refused struct{ hole *HoleError }

func (e *refused) Error() string { return e.hole.Error() }

func (e *refused) Unwrap() error { return e.hole.Unwrap() }

// Tolerate returns nil for a *HoleError, for a caller that goes on with what could be read and
// names the damaged records itself; any other error as it is.
func Tolerate(err error) error {
	if _, is := errors.AsType[*HoleError](err); is {
		return nil
	}
	return err
}
