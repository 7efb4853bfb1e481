package events

import (
	"errors"
	"fmt"
	"iter"
)

// ErrNotFound reports that a record, session, document or position does not exist.
var ErrNotFound = errors.New("not found")

// InvalidError reports an invalid field of an event, payload or name, and why. Nothing was written.
type InvalidError struct {
	Field  string // a path such as "id", "data.entries[2].turn"
	Reason string
}

func (e *InvalidError) Error() string {
	if e.Field == "" {
		return "invalid: " + e.Reason
	}
	return "invalid " + e.Field + ": " + e.Reason
}

func invalid(field, format string, args ...any) error {
	return &InvalidError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

// TypeError reports that a type of events is registered with another movement or other offsets, which never change.
// Nothing was written.
type TypeError struct {
	Name       string // of the type
	Field      string // moves or offsets
	Have, Want string // as registered, and as given
}

func (e *TypeError) Error() string {
	return fmt.Sprintf("type %s is registered with %s %s, not %s: another meaning needs another name", e.Name, e.Field, e.Have, e.Want)
}

// PersonalError reports that content of PersonalNamespace would have become accessible to others. Nothing was written.
type PersonalError struct {
	Where    string // the place that others can reach: "an export", "a store that others can reach"
	Subjects int    // how many subjects of that namespace it has already; 0: none, or it does not matter
}

func (e *PersonalError) Error() string {
	if e.Subjects > 0 {
		return fmt.Sprintf("namespace %s is for one person and must not be in %s: the store has %d documents and sessions of it", PersonalNamespace, e.Where, e.Subjects)
	}
	return fmt.Sprintf("namespace %s is for one person and must not be in %s", PersonalNamespace, e.Where)
}

// DamageError stands for a record that the log holds at an offset but cannot return. Reads yield it at the record's
// position and continue.
type DamageError struct {
	Offset Offset
	Err    error // the reason; may be nil
}

func (e *DamageError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("damaged record %v", e.Offset)
	}
	return fmt.Sprintf("damaged record %v: %v", e.Offset, e.Err)
}

// Unwrap returns the reason.
func (e *DamageError) Unwrap() error { return e.Err }

// IsDamage reports whether an error is a *DamageError.
func IsDamage(err error) bool {
	_, is := errors.AsType[*DamageError](err)
	return is
}

// ErasedError reports that a value cannot be read because the content of its record was erased. It matches ErrNotFound.
type ErasedError struct {
	Offset  Offset // of the record
	Receipt string // see Event.Erased
}

func (e *ErasedError) Error() string {
	return fmt.Sprintf("the content of record %v was erased (receipt %s)", e.Offset, e.Receipt)
}

// Is reports whether target is ErrNotFound.
func (e *ErasedError) Is(target error) bool { return target == ErrNotFound }

// Readable skips the damaged records of a read. The log still notes each of them in the context of the read: see
// log.NoteDamage.
func Readable[T any](read iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for rec, err := range read {
			if !IsDamage(err) && !yield(rec, err) {
				return
			}
		}
	}
}
