package projector

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tallylog/tally/events"
)

// A HoleError reports that records of a session or document cannot be read. The function that returns it also returns
// the result of the readable records. A caller that displays the result names the damaged records; a caller that
// decides by it refuses. HoleError unwraps to the *events.DamageError of the first record.
type HoleError struct {
	Subject events.Subject  // of kind KindView, with the view's name as id, if the view does not show the records
	Damaged []events.Offset // in log order, at least one
}

func (e *HoleError) Error() string {
	name := e.Subject.Name()
	if e.Subject.Kind == KindView {
		name = "view " + e.Subject.ID
	}
	if n := len(e.Damaged); n > 1 {
		return fmt.Sprintf("%s: %d records cannot be read: %v", name, n, e.Damaged)
	}
	return fmt.Sprintf("%s: damaged record %v", name, e.Damaged[0])
}

// KindView is the kind of a subject that stands for a view in a HoleError. No document has it.
const KindView = "view"

// Unwrap returns the damage of the first record.
func (e *HoleError) Unwrap() error { return &events.DamageError{Offset: e.Damaged[0]} }

// HoleOf returns the error for a subject with damaged records, or nil if the list is empty.
func HoleOf(sub events.Subject, damaged []events.Offset) error {
	if len(damaged) == 0 {
		return nil
	}
	list := slices.Clone(damaged)
	slices.Sort(list)
	return &HoleError{sub, slices.Compact(list)}
}

// Refuse turns a *HoleError into an error that Tolerate does not accept: no usable result comes with it. The new error
// unwraps to the *events.DamageError of the first record. Refuse returns other errors unchanged.
func Refuse(err error) error {
	if hole, is := errors.AsType[*HoleError](err); is {
		return &refused{hole}
	}
	return err
}

type refused struct{ hole *HoleError }

func (e *refused) Error() string { return e.hole.Error() }

func (e *refused) Unwrap() error { return e.hole.Unwrap() }

// Tolerate returns nil for a *HoleError. It is for callers that use the readable records and name the damaged ones
// themselves. Tolerate returns other errors unchanged.
func Tolerate(err error) error {
	if _, is := errors.AsType[*HoleError](err); is {
		return nil
	}
	return err
}
