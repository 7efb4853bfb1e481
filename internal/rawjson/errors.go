package rawjson

import (
	"fmt"
	"strconv"
)

// A SyntaxError is the position of a byte that is not valid JSON, or not JSON that this package accepts (see [Check]),
// and the reason.
type SyntaxError struct {
	Offset int64 // of the offending byte, from the start of the whole input
	Reason string
}

func (e *SyntaxError) Error() string { return fmt.Sprintf("offset %d: %s", e.Offset, e.Reason) }

// A FieldError reports a value that does not fit its field. Path has Go's syntax, from the outermost value:
// `entries[3].turn`, `tokens["gpt-5"]`. It is empty for the outermost value itself.
type FieldError struct {
	Path, Reason string
}

func (e *FieldError) Error() string {
	if e.Path == "" {
		return e.Reason
	}
	return e.Path + ": " + e.Reason
}

// A causedError is a FieldError whose reason is the error of an Appender or a Parser. It wraps both.
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

// foreign converts the error of an Appender or a Parser. The offset of its SyntaxError is relative to the wrong start,
// so only the text is kept.
func foreign(err error) error {
	switch e := err.(type) {
	case *FieldError, *causedError:
		return e
	case *SyntaxError:
		return &FieldError{Reason: e.Error()}
	}
	return &causedError{FieldError{Reason: err.Error()}, err}
}

// within adds elem to the path of err. Paths grow from the inside out, so decoding without errors does not pay for
// them.
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
