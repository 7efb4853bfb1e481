package rawjson

import (
	"fmt"
	"strconv"
)

// A SyntaxError is a place in the input that is not JSON, or not the JSON this
// package reads (see [Check]), and why.
type SyntaxError struct {
	Offset int64 // of the offending byte, from the start of the whole input
	Reason string
}

func (e *SyntaxError) Error() string { return fmt.Sprintf("offset %d: %s", e.Offset, e.Reason) }

// A FieldError is a value that does not fit its place. Path is written as in
// Go, from the outermost value: `entries[3].turn`, `tokens["gpt-5"]`. It is
// empty for the outermost value itself.
type FieldError struct {
	Path, Reason string
}

func (e *FieldError) Error() string {
	if e.Path == "" {
		return e.Reason
	}
	return e.Path + ": " + e.Reason
}

// A causedError is a FieldError whose reason is an error of an Appender or a
// Parser. It is both.
type causedError struct {
	FieldError
	cause error
}

func (e *causedError) Error() string   { return e.FieldError.Error() }
func (e *causedError) Unwrap() []error { return []error{&e.FieldError, e.cause} }

func bad(at int, reason string) error {
	return &SyntaxError{Offset: int64(at), Reason: reason}
}

func misfit(format string, args ...any) error {
	return &FieldError{Reason: fmt.Sprintf(format, args...)}
}

// foreign makes the error of an Appender or a Parser one of ours. A
// SyntaxError counts from the wrong place, so only its text is kept.
func foreign(err error) error {
	switch e := err.(type) {
	case *FieldError, *causedError:
		return e
	case *SyntaxError:
		return &FieldError{Reason: e.Error()}
	}
	return &causedError{FieldError{Reason: err.Error()}, err}
}

// within says that err happened inside elem. Paths grow from the inside out,
// so that reading without errors costs nothing.
func within(err error, elem string) error {
	switch e := err.(type) {
	case *FieldError:
		return &FieldError{join(elem, e.Path), e.Reason}
	case *causedError:
		return &causedError{FieldError{join(elem, e.Path), e.Reason}, e.cause}
	}
	return err
}

func join(elem, rest string) string {
	if rest == "" || rest[0] == '[' {
		return elem + rest
	}
	return elem + "." + rest
}

func atIndex(n int) string    { return "[" + strconv.Itoa(n) + "]" }
func atKey(key string) string { return "[" + strconv.Quote(key) + "]" }
