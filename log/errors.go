package log

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tallylog/tally/events"
)

// What callers branch on. Typed errors with the facts match them.
var (
	// ErrConflict: the subject is not as expected, nothing was written. Load it
	// again and decide again. See *ConflictError.
	ErrConflict = errors.New("conflict")

	// ErrUnknown: no answer came. The events may have been stored or not;
	// appending the same events again settles it.
	ErrUnknown = errors.New("outcome unknown")

	// ErrAborted: an earlier AppendAsync to the same subject failed, so this one
	// was not written.
	ErrAborted = errors.New("aborted")

	// ErrNotFound: there is no such record.
	ErrNotFound = errors.New("not found")

	// ErrFull: the store has no room. Nothing was written.
	ErrFull = errors.New("store full")

	// ErrUnavailable: the store cannot serve the call now. Nothing was written.
	ErrUnavailable = errors.New("store unavailable")

	// ErrTooLarge: see *SizeError. Nothing was written.
	ErrTooLarge = errors.New("too large")

	// ErrDuplicate is a Backend's answer to several messages of which at least one
	// was stored lately. A Log never returns it.
	ErrDuplicate = errors.New("duplicate message")

	// ErrBusy is a Backend's answer when a moment later might do. A Log tries
	// again, and returns ErrUnavailable in the end.
	ErrBusy = errors.New("busy")
)

// ConflictError says what was expected of a subject and what is there. It matches
// ErrConflict; nothing was written.
type ConflictError struct {
	Subject events.Subject
	Want    events.Offset // of the expectation
	Have    events.Offset // the subject's last offset; 0 if it has none, or it is not known
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("log: append %s: want %v, have %v", e.Subject.NATS(), e.Want, e.Have)
}

// Is reports whether target is ErrConflict.
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// Existing is an event of an append that the log already holds.
type Existing struct {
	Index  int // among the events of the append
	ID     string
	Offset events.Offset
}

// PartialError says that some events of an append are in the log and others are
// not. Nothing was written: append the others by themselves if that is meant.
type PartialError struct {
	Subject events.Subject
	Have    []Existing
}

func (e *PartialError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "log: append %s: only a part of it is in the log already:", e.Subject.NATS())
	for i, h := range e.Have {
		if i == 3 {
			fmt.Fprintf(&b, " and %d more", len(e.Have)-i)
			break
		}
		fmt.Fprintf(&b, " %s at %v", h.ID, h.Offset)
	}
	return b.String()
}

// SizeError says what of an append is over its limit. It matches ErrTooLarge;
// nothing was written.
type SizeError struct {
	Index int    // of the event; -1: the append as a whole
	What  string // "data", "headers", "events"
	Size  int
	Max   int
}

func (e *SizeError) Error() string {
	if e.Index < 0 {
		return fmt.Sprintf("log: append: %d %s, at most %d are allowed", e.Size, e.What, e.Max)
	}
	return fmt.Sprintf("log: append: %s of event %d: %d bytes, at most %d are allowed", e.What, e.Index, e.Size, e.Max)
}

// Is reports whether target is ErrTooLarge.
func (e *SizeError) Is(target error) bool { return target == ErrTooLarge }

// ConfigError says that a stream on the server is configured such that it could
// lose or rewrite records, and is therefore refused.
type ConfigError struct {
	Stream, Field string
	Have, Need    string
}

func (e *ConfigError) Error() string {
	return fmt.Sprintf("log: stream %s: %s is %s, must be %s", e.Stream, e.Field, e.Have, e.Need)
}

func isNotFound(err error) bool { return errors.Is(err, ErrNotFound) }
