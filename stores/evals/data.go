package evals

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
)

// Errors of conversations that callers branch on.
var (
	// ErrNoSteps reports that steps were never saved. A conversation that was saved without steps has no such error.
	ErrNoSteps = errors.New("no steps were ever saved")
	// ErrEmpty reports that a file of steps has no line.
	ErrEmpty = errors.New("the conversation's file is empty")
)

// UnknownID is the id of a decoded conversation whose file has none.
const UnknownID = "unknown"

// Data is the content of a conversation for Load and Save.
type Data struct {
	ID       string     // the id on every line; may differ from the id of the session
	Metadata events.Raw // free object, or nil
	Steps    []Step

	// Revision is the session's last offset at the load or save. If another writer changed the steps since, a save is
	// refused. 0: the content is new, and a save replaces any other.
	Revision events.Offset

	// Warnings lists turns that are not steps and were skipped, and members of steps that were ignored.
	Warnings []Warning
}

// Warning is a problem in a conversation's file.
type Warning struct {
	Line   int // from 1: of the file, or of the thread's turns
	Reason string
}

func (w Warning) String() string { return fmt.Sprintf("line %d: %s", w.Line, w.Reason) }

// LineError reports a line that is not JSON.
type LineError struct {
	Line   int // from 1, counting all lines
	Filled int // from 1, without blank lines
	Err    error
}

func (e *LineError) Error() string {
	if e.Line == e.Filled {
		return fmt.Sprintf("line %d: %v", e.Line, e.Err)
	}
	return fmt.Sprintf("line %d (%d without blank ones): %v", e.Line, e.Filled, e.Err)
}

// Unwrap returns the error of the line.
func (e *LineError) Unwrap() error { return e.Err }

// Decode decodes a conversation.jsonl.
//
// It skips blank lines. A file without lines is ErrEmpty, a line that is not JSON a *LineError. It skips a line that
// is JSON but not a step, with a warning. Id and metadata are those of the first line; without an id there, the id is
// UnknownID. A timestamp that is not a string is ignored; a line with an invalid timestamp is not a step.
func Decode(jsonl []byte) (*Data, error) {
	d := decoding{c: &Data{ID: UnknownID}}
	line := 0
	for len(jsonl) > 0 {
		var text []byte
		text, jsonl, _ = bytes.Cut(jsonl, []byte("\n"))
		line++
		text = rawjson.Trim(bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")))
		if len(text) == 0 {
			continue
		}
		if err := rawjson.Check(text); err != nil {
			return nil, &LineError{Line: line, Filled: d.filled + 1, Err: err}
		}
		d.add(line, text)
	}
	if d.filled == 0 {
		return nil, ErrEmpty
	}
	return d.c, nil
}

// decoding is a conversation that is being decoded.
type decoding struct {
	c         *Data
	filled    int
	positions []int // index of each step among the added turns
}

// add adds the next turn, which is JSON.
func (d *decoding) add(line int, raw events.Raw) {
	index := d.filled
	d.filled++
	step, err := ParseStep(raw)
	if index == 0 {
		d.head(step.fields)
	}
	if err != nil {
		d.c.Warnings = append(d.c.Warnings, Warning{line, "not a step, left out: " + err.Error()})
		return
	}
	if at, ok := step.fields.Get(fieldTimestamp); ok && !startsWith(at, `"`) {
		d.c.Warnings = append(d.c.Warnings, Warning{line, "timestamp: no string, does not count"})
	}
	d.c.Steps = append(d.c.Steps, step)
	d.positions = append(d.positions, index)
}

// head takes id and metadata from the first line.
func (d *decoding) head(fields events.Fields) {
	if id := fields.Text(fieldConversationID); id != "" {
		d.c.ID = id
	}
	if meta, ok := fields.Get(fieldConversationMetadata); ok && startsWith(meta, "{") {
		d.c.Metadata = meta
	}
}

// Encode returns a conversation.jsonl: an object a line, with the id on each and the metadata on the first one,
// without a final newline. A conversation without steps is an empty file, which has neither id nor metadata; a Store
// keeps both. If c is not valid, the error is *events.InvalidError.
func Encode(c *Data) ([]byte, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	var out []byte
	for i, step := range c.Steps {
		if i > 0 {
			out = append(out, '\n')
		}
		line, err := encodeStep(step, i, c.ID, c.Metadata)
		if err != nil {
			return nil, err
		}
		out = rawjson.AppendCompact(out, line)
	}
	return out, nil
}

// encodeStep returns a step with the id of its conversation, and the first one with the metadata. It does not change
// a step that has both.
func encodeStep(s Step, index int, id string, metadata events.Raw) (events.Raw, error) {
	raw := s.raw
	var err error
	if have, ok := s.fields.Get(fieldConversationID); !ok || !isText(have, id) {
		if raw, err = rawjson.SetMember(raw, fieldConversationID, rawjson.AppendString(nil, id)); err != nil {
			return nil, err
		}
	}
	have, ok := s.fields.Get(fieldConversationMetadata)
	switch {
	case index > 0 || metadata == nil:
		if ok {
			return rawjson.DeleteMember(raw, fieldConversationMetadata)
		}
	case !ok || !rawjson.Equal(have, metadata):
		return rawjson.SetMember(raw, fieldConversationMetadata, metadata)
	}
	return raw, nil
}

func isText(raw events.Raw, want string) bool {
	text, err := rawjson.String(raw)
	return err == nil && text == want
}

// validate refuses an invalid conversation.
func (c *Data) validate() error {
	if c.ID == "" {
		return &events.InvalidError{Field: fieldID, Reason: "missing"}
	}
	if err := checkMetadata(c.Metadata); err != nil {
		return err
	}
	for i, s := range c.Steps {
		field := fmt.Sprintf("steps[%d]", i)
		if s.IsZero() {
			return &events.InvalidError{Field: field, Reason: "missing"}
		}
		if err := s.check(); err != nil {
			return inside(field, err)
		}
	}
	return nil
}

func checkMetadata(metadata events.Raw) error {
	if metadata == nil {
		return nil
	}
	if err := rawjson.Check(metadata); err != nil {
		return rawError(fieldMetadata, err)
	}
	if !startsWith(rawjson.Trim(metadata), "{") {
		return &events.InvalidError{Field: fieldMetadata, Reason: "want an object"}
	}
	return nil
}

// inside prepends a path to that of an *events.InvalidError.
func inside(path string, err error) error {
	if e, ok := errors.AsType[*events.InvalidError](err); ok {
		return &events.InvalidError{Field: joinPath(path, e.Field), Reason: e.Reason}
	}
	return err
}
