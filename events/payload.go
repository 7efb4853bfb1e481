package events

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/tallylog/tally/internal/rawjson"
)

// Payload is the typed view of an event's data. All but document.written have
// one: a document's data are its own bytes.
type Payload interface {
	EventType() string
	// Validate returns an *InvalidError with the first invalid field.
	Validate() error
}

// Raw is a JSON value that is kept byte for byte: key order, number spelling,
// escapes, white space.
type Raw = json.RawMessage

// Field is a name and its raw value; Fields are a JSON object in its order.
type (
	Field  = rawjson.Member
	Fields = rawjson.Members
)

// rawCheck checks a raw field of a payload.
type rawCheck func(path string, raw Raw) error

// scanned accepts raw fields that the reader or writer of the payload scans anyway.
func scanned(string, Raw) error { return nil }

// large is a payload whose raw fields may be large, so that they should not be scanned twice.
type large interface {
	Payload
	// validate is Validate with another check of the raw fields.
	validate(rawCheck) error
}

// validate is Validate for a payload whose raw fields are scanned elsewhere.
func validate(p Payload) error {
	if l, ok := p.(large); ok {
		return l.validate(scanned)
	}
	return p.Validate()
}

// Encode validates and encodes a payload.
func Encode(p Payload) ([]byte, error) { return encode(p, rawjson.Append) }

// encodeVerbatim is Encode for raw fields that are known to be JSON without white space around it, such as a part of a
// scanned value: they are not scanned again. For other bytes the result is undefined.
func encodeVerbatim(p Payload) ([]byte, error) { return encode(p, rawjson.AppendVerbatim) }

func encode(p Payload, write func([]byte, any) ([]byte, error)) ([]byte, error) {
	if err := validate(p); err != nil {
		return nil, err
	}
	data, err := write(nil, p)
	if err != nil { // prefer the error of Validate
		return nil, cmp.Or(p.Validate(), dataError("data", err))
	}
	return data, nil
}

// Decode decodes and validates the payload of a known type. The payload's raw fields alias data. For an unknown type,
// and for document.written, it returns nil and no error.
func Decode(typ string, data []byte) (Payload, error) {
	info := vocabulary[typ]
	if info.new == nil {
		return nil, nil
	}
	p := info.new()
	if err := decodeInto(data, p); err != nil {
		return nil, err
	}
	return p, nil
}

// DecodeAs is Decode for a caller that knows which payload it wants.
func DecodeAs[T any, P interface {
	*T
	Payload
}](e Event) (P, error) {
	p := P(new(T))
	if e.Type != p.EventType() {
		return nil, invalid("type", "%s is not %s", e.Type, p.EventType())
	}
	if err := decodeInto(e.Data, p); err != nil {
		return nil, err
	}
	return p, nil
}

func decodeInto(data []byte, p Payload) error {
	if err := rawjson.Unmarshal(data, p); err != nil {
		return dataError("data", err)
	}
	return validate(p)
}

// dataError returns an error of the scanner as an *InvalidError at a path.
func dataError(path string, err error) error {
	if f, ok := err.(*rawjson.FieldError); ok {
		return &InvalidError{Field: join(path, f.Path), Reason: f.Reason}
	}
	return &InvalidError{Field: path, Reason: err.Error()}
}

// wrong returns the error for a field of the data, with its path in the data.
func wrong(path, format string, args ...any) error {
	return &InvalidError{Field: "data." + path, Reason: fmt.Sprintf(format, args...)}
}

// first returns the first error that is not nil.
func first(errs ...error) error { return cmp.Or(errs...) }

func required(path, value string) error {
	if value == "" {
		return wrong(path, "missing")
	}
	return nil
}

func oneOf(path, value string, allowed ...string) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	return wrong(path, "%q: want one of %q", value, allowed)
}

func notNegative(path string, n int64) error {
	if n < 0 {
		return wrong(path, "%d is negative", n)
	}
	return nil
}

func validOffset(path string, o Offset) error {
	if o > MaxOffset {
		return wrong(path, "%d is no offset", uint64(o))
	}
	return nil
}

// stoppedOr accepts the allowed words and stopped:<reason>.
func stoppedOr(path, value string, allowed ...string) error {
	if reason, ok := strings.CutPrefix(value, "stopped:"); ok && reason != "" {
		return nil
	}
	return oneOf(path, value, append(allowed[:len(allowed):len(allowed)], "stopped:<reason>")...)
}

func validRaw(path string, raw Raw) error {
	if len(raw) == 0 {
		return nil
	}
	if err := rawjson.Check(raw); err != nil {
		return wrong(path, "%v", err)
	}
	return nil
}

// setInto decodes a raw field into v, with errors that name its path.
func setInto(path string, raw Raw, v any) error {
	if err := rawjson.Unmarshal(raw, v); err != nil {
		return dataError("data."+path, err)
	}
	return nil
}

func join(path, rest string) string {
	if rest == "" || strings.HasPrefix(rest, "[") {
		return path + rest
	}
	return path + "." + rest
}

func stringField(path string, raw Raw) (string, error) {
	var s string
	err := setInto(path, raw, &s)
	return s, err
}
