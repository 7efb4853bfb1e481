package events

import (
	"bytes"
	"encoding/base64"
	"maps"
	"slices"
	"strconv"

	"github.com/tallylog/tally/internal/rawjson"
)

// AppendJSON appends an event in the JSON format of CloudEvents, with the data last.
//
// JSON data are the member data, byte for byte, line breaks included. Other data are data_base64. So are data of a JSON
// type that are invalid JSON, nested too deep for a member, or surrounded by white space. So ParseJSON returns the same
// bytes. Without data both members are missing: empty data and no data are the same, as in a NATS message. The
// namespace is not part of the format.
func AppendJSON(dst []byte, e Event) ([]byte, error) {
	if err := e.checkAttributes(); err != nil {
		return dst, err
	}
	dst = append(dst, `{"specversion":"1.0"`...)
	dst = appendAttribute(dst, "id", e.ID)
	dst = appendAttribute(dst, "source", e.Source)
	dst = appendAttribute(dst, "type", e.Type)
	dst = appendAttribute(dst, "subject", e.Subject.String())
	if !e.Time.IsZero() {
		dst = appendAttribute(dst, "time", formatTime(e.Time))
	}
	dst = appendAttribute(dst, "datacontenttype", e.ContentType)
	dst = appendAttribute(dst, "dataschema", e.schema())
	for _, name := range sortedKeys(e.Extensions) {
		dst = appendMember(dst, name, e.Extensions[name])
	}
	return e.appendData(dst), nil
}

func appendAttribute(dst []byte, name, value string) []byte {
	if value == "" {
		return dst
	}
	return appendMember(dst, name, value)
}

// appendMember appends a member whose name needs no escapes.
func appendMember(dst []byte, name, value string) []byte {
	dst = append(dst, `,"`...)
	dst = append(dst, name...)
	dst = append(dst, `":`...)
	return rawjson.AppendString(dst, value)
}

// appendData appends the data and closes the object.
func (e Event) appendData(dst []byte) []byte {
	if len(e.Data) == 0 {
		return append(dst, '}')
	}
	if e.claimsJSON() && !hasOuterSpace(e.Data) {
		type object struct {
			Data Raw `json:"data"`
		}
		// As a member of an object, the data are checked at their depth.
		if out, err := rawjson.Append(dst, object{e.Data}); err == nil {
			out[len(dst)] = ','
			return out
		}
	}
	dst = append(dst, `,"data_base64":"`...)
	dst = base64.StdEncoding.AppendEncode(dst, e.Data)
	return append(dst, `"}`...)
}

func (e Event) claimsJSON() bool { return e.ContentType == "" || IsJSON(e.ContentType) }

// isVerbatimJSON reports whether the data can be a JSON value unchanged.
func (e Event) isVerbatimJSON() bool {
	return e.claimsJSON() && !hasOuterSpace(e.Data) && rawjson.Check(e.Data) == nil
}

func hasOuterSpace(b []byte) bool {
	return len(b) > 0 && len(bytes.Trim(b, " \t\r\n")) != len(b)
}

// EncodeStructured encodes an event as a NATS message in the structured mode of CloudEvents. tally itself stores the
// binary form.
func EncodeStructured(e Event) (header map[string][]string, payload []byte, err error) {
	if payload, err = AppendJSON(nil, e); err != nil {
		return nil, nil, err
	}
	return map[string][]string{headerContentType: {structuredType + "+json"}}, payload, nil
}

// ParseJSON decodes one event in the JSON format of CloudEvents, in namespace ns. An event without a subject gets the
// zero Subject, for the caller to fill in.
//
// If the content type is JSON or missing, the data are the raw bytes of the value and alias b; for another content type
// they are the text of the string. "data": null is JSON's null, four bytes, for a JSON content type, and otherwise no
// data. Any other attribute that is null counts as absent. Extensions that are booleans or integers become their
// canonical strings. If b is not an event, the error is an *InvalidError with the attribute, or with "json" if b is not
// a JSON object.
func ParseJSON(ns string, b []byte) (Event, error) {
	members, err := rawjson.Object(b)
	if err != nil {
		return Event{}, jsonError(err)
	}
	var d decoder
	var data, base64Data Raw
	for _, m := range members {
		switch {
		case m.Name == "data":
			data = m.Value
		case string(m.Value) == "null":
			err = checkName(m.Name)
		case m.Name == "data_base64":
			base64Data = m.Value
		default:
			err = d.member(ns, m)
		}
		if err != nil {
			return Event{}, err
		}
	}
	if d.seen&seenSpecVersion == 0 {
		return Event{}, invalid("specversion", "missing")
	}
	e := d.event
	if err := e.takeData(data, base64Data); err != nil {
		return Event{}, err
	}
	e.dropOwnSchema()
	return e, e.checkAttributes()
}

func jsonError(err error) error {
	if f, ok := err.(*rawjson.FieldError); ok && f.Path != "" {
		return invalid(f.Path, "%s", f.Reason)
	}
	return invalid("json", "%v", err)
}

func checkName(name string) error {
	if isCoreAttribute(name) || name == "data_base64" {
		return nil
	}
	return validateExtensionName(name)
}

// member sets one attribute of the JSON format. rawjson.Object has refused duplicate names.
func (d *decoder) member(ns string, m Field) error {
	if !isCoreAttribute(m.Name) {
		if err := validateExtensionName(m.Name); err != nil {
			return err
		}
		value, err := extensionValue(m)
		if err != nil {
			return err
		}
		return d.extension(m.Name, value)
	}
	value, err := rawjson.String(m.Value)
	if err != nil {
		return invalid(m.Name, "%v", err)
	}
	if value == "" {
		return invalid(m.Name, "empty")
	}
	if m.Name == "subject" {
		d.event.Subject, err = ParseSubject(ns, value)
		return err
	}
	bit, err := d.core(m.Name, value)
	d.seen |= bit
	return err
}

// extensionValue returns the canonical string of an extension's value.
func extensionValue(m Field) (string, error) {
	switch c := m.Value[0]; {
	case c == '"':
		text, err := rawjson.String(m.Value)
		if err != nil {
			return "", invalid(m.Name, "%v", err)
		}
		return text, nil
	case c == 't' || c == 'f':
		return string(m.Value), nil
	case c == '-' || '0' <= c && c <= '9':
		n, err := strconv.ParseInt(string(m.Value), 10, 32)
		if err != nil {
			return "", invalid(m.Name, "%.40s: want an integer of 32 bits", m.Value)
		}
		return strconv.FormatInt(n, 10), nil
	}
	return "", invalid(m.Name, "want a string, an integer or a boolean")
}

// takeData sets the event's data from the members data and data_base64.
func (e *Event) takeData(data, base64Data Raw) error {
	switch {
	case data == nil && base64Data == nil:
		return nil
	case data != nil && base64Data != nil:
		return invalid("data", "want data or data_base64, not both")
	case data != nil && e.claimsJSON():
		e.Data = data
		return nil
	case string(data) == "null":
		return nil
	}
	field, value := "data", data
	if base64Data != nil {
		field, value = "data_base64", base64Data
	}
	text, err := rawjson.String(value)
	if err != nil {
		return invalid(field, "%v", err)
	}
	content := []byte(text)
	if base64Data != nil {
		if content, err = decodeBase64(content); err != nil {
			return invalid(field, "%v", err)
		}
	}
	if len(content) > 0 {
		e.Data = content
	}
	return nil
}

func decodeBase64(text []byte) ([]byte, error) {
	if i := bytes.IndexAny(text, "\r\n"); i >= 0 { // the decoder would skip them
		return nil, base64.CorruptInputError(i)
	}
	out := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
	n, err := base64.StdEncoding.Strict().Decode(out, text)
	return out[:n], err
}

// schema returns the dataschema in the event's external forms.
func (e Event) schema() string {
	if IsKnown(e.Type) && e.DataSchema == "" {
		return DataSchema(e.Type)
	}
	return e.DataSchema
}

// dropOwnSchema removes a dataschema that follows from the type.
func (e *Event) dropOwnSchema() {
	if e.DataSchema == DataSchema(e.Type) {
		e.DataSchema = ""
	}
}

func sortedKeys[V any](m map[string]V) []string {
	if len(m) == 0 { // the usual case, for every event that is read
		return nil
	}
	return slices.Sorted(maps.Keys(m))
}
