package chat

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
)

// VersionError refuses a snapshot of another version.
type VersionError struct {
	Have uint32 // the version in the snapshot
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("unsupported snapshot version %d (expected %d)", e.Have, Version)
}

// LengthError refuses a snapshot whose mask of pins does not have the length of its list of messages.
type LengthError struct {
	Messages, Pinned int
}

func (e *LengthError) Error() string {
	return fmt.Sprintf("length mismatch: %d messages, %d pins", e.Messages, e.Pinned)
}

// DecodeError describes an error in a snapshot's JSON and its position.
type DecodeError struct {
	Offset int    // in bytes from the beginning; -1: unknown, or see Field
	Line   int    // from 1; 0 if there is no Offset
	Column int    // in characters, from 1
	Field  string // such as messages[3].User.blocks[0].Text; "": the whole
	Err    error  // *VersionError, *LengthError, or the reason
}

func (e *DecodeError) Error() string {
	switch {
	case e.Line > 0:
		return fmt.Sprintf("%v at line %d column %d", e.Err, e.Line, e.Column)
	case e.Field != "":
		return e.Field + ": " + e.Err.Error()
	}
	return e.Err.Error()
}

// Unwrap returns the reason.
func (e *DecodeError) Unwrap() error { return e.Err }

// MessageError reports that a turn of a history is not a message. Another program appended it.
type MessageError struct {
	Subject events.Subject
	Offset  events.Offset // of the event with the turn
	Index   int           // of the turn, from 0
	Err     error         // *DecodeError
}

func (e *MessageError) Error() string {
	return fmt.Sprintf("load %s: turn %d, by %v, is not a message: %v", e.Subject.Name(), e.Index+1, e.Offset, e.Err)
}

// Unwrap returns the error of the turn.
func (e *MessageError) Unwrap() error { return e.Err }

// fieldError is a reason with the path of a value.
type fieldError struct {
	path   string
	reason error
}

func (e *fieldError) Error() string { return e.path + ": " + e.reason.Error() }
func (e *fieldError) Unwrap() error { return e.reason }

// within prepends the path of the container to the path of a value.
func within(path string, err error) error {
	f, ok := errors.AsType[*fieldError](err)
	switch {
	case !ok:
		return &fieldError{path, err}
	case strings.HasPrefix(f.path, "["):
		return &fieldError{path + f.path, f.reason}
	}
	return &fieldError{path + "." + f.path, f.reason}
}

// reasonOf converts an error of the scanner to a reason with this package's path.
func reasonOf(err error) error {
	f, ok := errors.AsType[*rawjson.FieldError](err)
	switch {
	case !ok:
		return err
	case f.Path == "":
		return errors.New(f.Reason)
	}
	return &fieldError{f.Path, errors.New(f.Reason)}
}

// Located returns an error as a *DecodeError, with its position in data.
func Located(data []byte, err error) error {
	if s, ok := errors.AsType[*rawjson.SyntaxError](err); ok {
		at := min(max(int(s.Offset), 0), len(data))
		before := data[:at]
		line := 1 + bytes.Count(before, []byte("\n"))
		column := 1 + utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:])
		return &DecodeError{Offset: at, Line: line, Column: column, Err: errors.New(s.Reason)}
	}
	e := &DecodeError{Offset: -1, Err: err}
	if f, ok := errors.AsType[*fieldError](reasonOf(err)); ok {
		e.Field, e.Err = f.path, f.reason
	} else {
		e.Err = reasonOf(err)
	}
	return e
}
