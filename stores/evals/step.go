package evals

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
)

// Step is one turn of a conversation: the input, and the messages that answered it. It is raw JSON with typed
// accessors. Unknown fields are kept, and setters edit the raw tokens, so that all other bytes stay as they were. The
// zero Step is not a step.
type Step struct {
	raw    events.Raw
	fields events.Fields
}

// Names of a step's fields.
const (
	fieldStepIndex = "stepIndex"
	fieldInput     = "input"
	fieldOutput    = "output"
	fieldID        = "id"
	fieldTimestamp = "timestamp"
	fieldMetadata  = "metadata"

	fieldConversationID       = "conversationId"       // on every line of a file
	fieldConversationMetadata = "conversationMetadata" // on the first line
)

// NewStep returns a step of its index, the input message and the output messages, each an object. If one is not, the
// error is *events.InvalidError.
func NewStep(index int, input events.Raw, output ...events.Raw) (Step, error) {
	b := strconv.AppendInt([]byte(`{"stepIndex":`), int64(index), 10)
	b = append(append(b, `,"input":`...), input...)
	b = rawjson.AppendArray(append(b, `,"output":`...), output)
	return ParseStep(append(b, '}'))
}

// ParseStep parses a step and keeps its bytes. If raw is not JSON, or a field has a wrong type, the error is
// *events.InvalidError with the field.
func ParseStep(raw events.Raw) (Step, error) {
	fields, err := rawjson.Object(raw)
	if err != nil {
		return Step{}, rawError("", err)
	}
	s := Step{raw, fields}
	return s, s.check()
}

// check checks the types of the known fields. A timestamp that is not a string is ignored, without an error.
func (s Step) check() error {
	for _, f := range []struct {
		name, first, want string
		optional          bool
	}{
		{fieldStepIndex, "-0123456789", "a number", false},
		{fieldInput, "{[", "an object", false},
		{fieldOutput, "[", "an array of objects", false},
		{fieldID, `"`, "a string", true},
		{fieldMetadata, "{", "an object", true},
	} {
		raw, ok := s.fields.Get(f.name)
		switch {
		case !ok && !f.optional:
			return &events.InvalidError{Field: f.name, Reason: "missing"}
		case ok && !startsWith(raw, f.first):
			return &events.InvalidError{Field: f.name, Reason: "want " + f.want}
		}
	}
	for i, message := range s.Output() {
		if !startsWith(message, "{[") {
			return &events.InvalidError{Field: fmt.Sprintf("output[%d]", i), Reason: "want an object"}
		}
	}
	if raw, ok := s.fields.Get(fieldTimestamp); ok && startsWith(raw, `"`) {
		if _, ok := s.Timestamp(); !ok {
			return &events.InvalidError{Field: fieldTimestamp, Reason: "want a time such as 2026-01-02T03:04:05.678Z"}
		}
	}
	return nil
}

func startsWith(raw events.Raw, chars string) bool {
	return len(raw) > 0 && strings.IndexByte(chars, raw[0]) >= 0
}

// Raw returns the step's JSON, byte for byte. The caller must not change it.
func (s Step) Raw() events.Raw { return s.raw }

// IsZero reports whether the step is the zero Step.
func (s Step) IsZero() bool { return s.raw == nil }

// StepIndex returns the index in the step's own field. It may differ from the step's position.
func (s Step) StepIndex() int {
	raw, _ := s.fields.Get(fieldStepIndex)
	n, err := strconv.ParseFloat(string(raw), 64)
	if err != nil {
		return 0
	}
	return int(n)
}

// Input returns the message that the step answers.
func (s Step) Input() events.Raw { return s.Field(fieldInput) }

// Output returns the messages that answer it.
func (s Step) Output() []events.Raw {
	list, err := rawjson.Array(s.Field(fieldOutput))
	if err != nil {
		return nil
	}
	return list
}

// ID returns the provider's message id, or "".
func (s Step) ID() string { return s.fields.Text(fieldID) }

// Timestamp returns the step's time, and whether it has one. Field returns its spelling.
func (s Step) Timestamp() (time.Time, bool) { return parseDate(s.fields.Text(fieldTimestamp)) }

// Metadata returns the step's free object, or nil.
func (s Step) Metadata() events.Raw { return s.Field(fieldMetadata) }

// Field returns any field with its bytes, or nil.
func (s Step) Field(name string) events.Raw {
	raw, _ := s.fields.Get(name)
	return raw
}

// Fields lists the names of all fields in order.
func (s Step) Fields() []string {
	names := make([]string, len(s.fields))
	for i := range s.fields {
		names[i] = s.fields[i].Name
	}
	return names
}

// Set sets a field, at its position or at the end. A nil value removes the field. If the field cannot have the value,
// the error is *events.InvalidError, and the step stays as it was.
func (s *Step) Set(name string, value events.Raw) error {
	raw := s.raw
	if raw == nil {
		raw = events.Raw("{}")
	}
	var err error
	if value == nil {
		raw, err = rawjson.DeleteMember(raw, name)
	} else {
		raw, err = rawjson.SetMember(raw, name, value)
	}
	if err != nil {
		return rawError(name, err)
	}
	changed, err := ParseStep(raw)
	if err != nil {
		return err
	}
	*s = changed
	return nil
}

// SetStepIndex sets the index in the step's field.
func (s *Step) SetStepIndex(n int) error {
	return s.Set(fieldStepIndex, strconv.AppendInt(nil, int64(n), 10))
}

// SetInput sets the message that the step answers.
func (s *Step) SetInput(message events.Raw) error { return s.Set(fieldInput, message) }

// SetOutput sets the messages that answer it.
func (s *Step) SetOutput(messages ...events.Raw) error {
	return s.Set(fieldOutput, rawjson.AppendArray(nil, messages))
}

// SetID sets the provider's message id; "" removes it.
func (s *Step) SetID(id string) error {
	if id == "" {
		return s.Set(fieldID, nil)
	}
	return s.Set(fieldID, rawjson.AppendString(nil, id))
}

// SetTimestamp sets the time, in UTC with milliseconds; the zero time removes it.
func (s *Step) SetTimestamp(at time.Time) error {
	if at.IsZero() {
		return s.Set(fieldTimestamp, nil)
	}
	return s.Set(fieldTimestamp, rawjson.AppendString(nil, string(events.TimestampOf(at))))
}

// SetMetadata sets the step's free object; nil removes it.
func (s *Step) SetMetadata(object events.Raw) error { return s.Set(fieldMetadata, object) }

// Equal reports whether two steps have the same tokens. White space between them does not count; order, numbers and
// escapes do.
func (s Step) Equal(other Step) bool { return rawjson.Equal(s.raw, other.raw) }

// MarshalJSON returns the step's bytes.
func (s Step) MarshalJSON() ([]byte, error) {
	if s.raw == nil {
		return []byte("null"), nil
	}
	return s.raw, nil
}

// UnmarshalJSON is ParseStep.
func (s *Step) UnmarshalJSON(raw []byte) error {
	parsed, err := ParseStep(append(events.Raw(nil), raw...))
	if err == nil {
		*s = parsed
	}
	return err
}

// parseDate parses the spellings of a time that occur: with a zone, or without one, which means UTC.
func parseDate(text string) (time.Time, bool) {
	if text == "" {
		return time.Time{}, false
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02", "2006-01-02T15:04:05.999999999", "2006-01-02T15:04", "2006-01-02T15:04Z07:00"} {
		if at, err := time.ParseInLocation(layout, text, time.UTC); err == nil {
			return at, true
		}
	}
	return time.Time{}, false
}

// rawError returns an error of the scanner as an *events.InvalidError. path is the path of the parsed value.
func rawError(path string, err error) error {
	if e, ok := err.(*events.InvalidError); ok {
		return inside(path, e)
	}
	e := &events.InvalidError{Field: path, Reason: err.Error()}
	if f, ok := err.(*rawjson.FieldError); ok {
		e.Field, e.Reason = joinPath(path, f.Path), f.Reason
	}
	if e.Field == "" {
		e.Field = "json"
	}
	return e
}

func joinPath(path, rest string) string {
	if path == "" || rest == "" || rest[0] == '[' {
		return path + rest
	}
	return path + "." + rest
}
