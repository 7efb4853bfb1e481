package events

import (
	"strings"
	"time"
	"unicode/utf8"
)

// Names of headers. NATS treats them as case-sensitive: tally writes lower case
// and reads any.
const (
	headerPrefix      = "ce-"
	headerContentType = "Content-Type"
	specVersion       = "1.0"
	structuredType    = "application/cloudevents"
)

// EncodeBinary writes an event as a NATS message in the binary mode of
// CloudEvents: one ce- header for each attribute, and the data as they are. The
// header is the caller's; data alias e.Data. The event must be valid (Validate).
func EncodeBinary(e Event) (header map[string][]string, data []byte) {
	w := newHeaderWriter(8 + len(e.Extensions))
	w.set("ce-specversion", specVersion)
	w.set("ce-id", percentEncode(e.ID))
	w.set("ce-source", percentEncode(e.Source))
	w.set("ce-type", percentEncode(e.Type))
	w.set("ce-subject", e.Subject.String()) // its escapes leave nothing to encode
	if !e.Time.IsZero() {
		w.set("ce-time", formatTime(e.Time))
	}
	if e.DataSchema != "" && !IsKnown(e.Type) {
		w.set("ce-dataschema", percentEncode(e.DataSchema))
	}
	for name, value := range e.Extensions {
		w.set(extensionHeader(name), percentEncode(value))
	}
	switch {
	case e.ContentType != "":
		w.set(headerContentType, e.ContentType)
	case len(e.Data) > 0:
		w.set(headerContentType, ContentTypeJSON)
	}
	return w.header, e.Data
}

// headerWriter fills a header whose one-element values share one array.
type headerWriter struct {
	header map[string][]string
	values []string
}

func newHeaderWriter(n int) *headerWriter {
	return &headerWriter{header: make(map[string][]string, n), values: make([]string, 0, n)}
}

func (w *headerWriter) set(name, value string) {
	w.values = append(w.values, value)
	n := len(w.values)
	w.header[name] = w.values[n-1 : n : n]
}

// extensionHeader gives the header of an extension, without allocating for
// those that tally itself uses.
func extensionHeader(name string) string {
	switch name {
	case ExtActor:
		return "ce-actor"
	case ExtCorrelationID:
		return "ce-correlationid"
	case ExtCausationID:
		return "ce-causationid"
	case ExtSeen:
		return "ce-tallyseen"
	case ExtDoc:
		return "ce-tallydoc"
	case ExtDataRef:
		return "ce-dataref"
	case "traceparent":
		return "ce-traceparent"
	}
	return headerPrefix + name
}

// HeaderSize is the number of bytes that a header takes on the wire: the status
// line, a line for each value, and the empty line.
func HeaderSize(header map[string][]string) int {
	n := len("NATS/1.0\r\n") + len("\r\n")
	for name, values := range header {
		for _, v := range values {
			n += len(name) + len(": ") + len(v) + len("\r\n")
		}
	}
	return n
}

// DecodeMessage reads an event from a stored NATS message, in binary or in
// structured mode. The NATS subject alone decides about the event's Subject; a
// ce-subject may be missing but may not contradict it. Strings and Data of the
// event alias the message. Headers that are no CloudEvents attributes are
// ignored. Attributes are checked, payloads are not: an error is an
// *InvalidError, and the same one for the same message everywhere.
func DecodeMessage(natsSubject string, header map[string][]string, payload []byte) (Event, error) {
	sub, err := ParseNATS(natsSubject)
	if err != nil {
		return Event{}, err
	}
	contentType, err := contentTypeOf(header)
	if err != nil {
		return Event{}, err
	}
	var e Event
	if hasFoldPrefix(contentType, structuredType) {
		e, err = decodeStructured(sub, contentType, payload)
	} else {
		e, err = decodeBinary(sub, contentType, header, payload)
	}
	if err != nil {
		return Event{}, err
	}
	if IsKnown(e.Type) {
		e.DataSchema = "" // follows from the type
	}
	if err := e.ValidateAttributes(); err != nil {
		return Event{}, err
	}
	return e, nil
}

func decodeStructured(sub Subject, contentType string, payload []byte) (Event, error) {
	media, _, _ := strings.Cut(contentType, ";")
	media = strings.TrimSpace(media)
	if !strings.EqualFold(media, structuredType+"+json") && !strings.EqualFold(media, structuredType) {
		return Event{}, invalid("datacontenttype", "%q: of the structured forms only %s+json is read", contentType, structuredType)
	}
	e, err := ParseJSON(sub.Namespace, payload)
	if err != nil {
		return Event{}, err
	}
	if e.Subject != (Subject{}) && e.Subject != sub {
		return Event{}, invalid("subject", "%s contradicts the message's subject %s", e.Subject, sub.NATS())
	}
	e.Subject = sub
	return e, nil
}

func decodeBinary(sub Subject, contentType string, header map[string][]string, payload []byte) (Event, error) {
	d := decoder{event: Event{Subject: sub, ContentType: contentType}}
	if len(payload) > 0 {
		d.event.Data = payload
	}
	for name, values := range header {
		if !hasFoldPrefix(name, headerPrefix) {
			continue
		}
		// Of several errors the least is reported, whatever the map's order.
		if err := d.attribute(lower(name[len(headerPrefix):]), values); err != nil && (d.err == nil || err.Error() < d.err.Error()) {
			d.err = err
		}
	}
	switch {
	case d.err != nil:
		return Event{}, d.err
	case d.seen == 0 && d.event.Extensions == nil:
		return Event{}, invalid("specversion", "the message has no attributes of CloudEvents")
	case d.seen&seenSpecVersion == 0:
		return Event{}, invalid("specversion", "missing")
	}
	return d.event, nil
}

// decoder collects the attributes of one message. Bits of seen are the core
// attributes that were there.
type decoder struct {
	event Event
	seen  uint
	err   error
}

const (
	seenSpecVersion = 1 << iota
	seenID
	seenSource
	seenType
	seenSubject
	seenTime
	seenContentType
	seenDataSchema
)

// attribute takes one attribute, whose name is in lower case.
func (d *decoder) attribute(name string, values []string) error {
	if len(values) != 1 {
		return invalid(name, "the header has %d values", len(values))
	}
	value, err := percentDecode(name, values[0])
	if err != nil {
		return err
	}
	bit, err := d.core(name, value)
	if err != nil {
		return err
	}
	if bit != 0 {
		if d.seen&bit != 0 {
			return invalid(name, "the header is there twice")
		}
		d.seen |= bit
		return nil
	}
	if err := ValidateExtensionName(name); err != nil {
		return err
	}
	if _, twice := d.event.Extensions[name]; twice {
		return invalid(name, "the header is there twice")
	}
	if d.event.Extensions == nil {
		d.event.Extensions = make(map[string]string)
	}
	d.event.Extensions[name] = value
	return nil
}

// core takes one of the attributes that CloudEvents itself defines and returns
// its bit, or 0 if it is none.
func (d *decoder) core(name, value string) (uint, error) {
	switch name {
	case "specversion":
		if value != specVersion {
			return 0, invalid("specversion", "%q: want %s", value, specVersion)
		}
		return seenSpecVersion, nil
	case "id":
		d.event.ID = value
		return seenID, nil
	case "source":
		d.event.Source = value
		return seenSource, nil
	case "type":
		d.event.Type = value
		return seenType, nil
	case "subject":
		return seenSubject, sameSubject(d.event.Subject, value)
	case "time":
		var err error
		d.event.Time, err = parseTime(value)
		return seenTime, err
	case "datacontenttype": // the binding's own place for it
		if d.event.ContentType != "" && d.event.ContentType != value {
			return 0, invalid("datacontenttype", "%q contradicts Content-Type %q", value, d.event.ContentType)
		}
		d.event.ContentType = value
		return seenContentType, nil
	case "dataschema":
		d.event.DataSchema = value
		return seenDataSchema, nil
	}
	return 0, nil
}

// sameSubject refuses a ce-subject that names another subject than the message's.
func sameSubject(sub Subject, text string) error {
	if text == sub.String() {
		return nil
	}
	named, err := ParseSubject(sub.Namespace, text)
	if err != nil {
		return err
	}
	if named != sub {
		return invalid("subject", "%s contradicts the message's subject %s", text, sub.NATS())
	}
	return nil
}

// contentTypeOf gives the value of Content-Type, in whatever case it is spelled.
func contentTypeOf(header map[string][]string) (string, error) {
	values, found := header[headerContentType], 0
	for name, v := range header {
		if len(name) == len(headerContentType) && strings.EqualFold(name, headerContentType) {
			values = v
			found += len(v)
		}
	}
	switch {
	case found > 1:
		return "", invalid("datacontenttype", "Content-Type is there %d times", found)
	case len(values) == 0:
		return "", nil
	}
	return values[0], nil
}

func hasFoldPrefix(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

// lower is strings.ToLower for ASCII; other letters are left for the check of
// names to refuse.
func lower(s string) string {
	for i := 0; i < len(s); i++ {
		if 'A' <= s[i] && s[i] <= 'Z' {
			return strings.Map(func(r rune) rune {
				if 'A' <= r && r <= 'Z' {
					return r + 'a' - 'A'
				}
				return r
			}, s)
		}
	}
	return s
}

// percentEncode writes an attribute for a header: space, ", % and everything
// outside U+0021 to U+007E as the %XX of its UTF-8 bytes.
func percentEncode(s string) string {
	n := 0
	for i := 0; i < len(s); i++ {
		if mustEncode(s[i]) {
			n++
		}
	}
	if n == 0 {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + 2*n)
	for i := 0; i < len(s); i++ {
		if c := s[i]; mustEncode(c) {
			b.WriteByte('%')
			b.WriteByte(upperHex[c>>4])
			b.WriteByte(upperHex[c&15])
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

func mustEncode(c byte) bool { return c < 0x21 || c > 0x7e || c == '"' || c == '%' }

// percentDecode undoes percentEncode, once. Bytes that should have been encoded
// and were not stand for themselves; what is no UTF-8 (overlong forms too) and a
// % without two hexadecimal digits are refused.
func percentDecode(name, s string) (string, error) {
	if i := strings.IndexByte(s, '%'); i >= 0 {
		var b strings.Builder
		b.Grow(len(s))
		for i := 0; i < len(s); i++ {
			if s[i] != '%' {
				b.WriteByte(s[i])
				continue
			}
			if i+2 >= len(s) || unhex(s[i+1]) < 0 || unhex(s[i+2]) < 0 {
				return "", invalid(name, "%q: a %% without two hexadecimal digits", s)
			}
			b.WriteByte(byte(unhex(s[i+1])<<4 | unhex(s[i+2])))
			i += 2
		}
		s = b.String()
	}
	if !utf8.ValidString(s) {
		return "", invalid(name, "%q is no valid UTF-8", s)
	}
	return s, nil
}

func unhex(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// formatTime writes a time as it stands in attributes. RFC 3339 has no zones with
// seconds: such a time is written in UTC.
func formatTime(t time.Time) string {
	if _, offset := t.Zone(); offset%60 != 0 || offset <= -24*3600 || offset >= 24*3600 {
		t = t.UTC()
	}
	return t.Format(time.RFC3339Nano)
}

// parseTime reads a time from an attribute. The result does not depend on the
// machine's own zone.
func parseTime(s string) (time.Time, error) {
	var t time.Time
	if err := t.UnmarshalText([]byte(s)); err != nil {
		return time.Time{}, invalid("time", "%q is not an RFC 3339 time", s)
	}
	if _, offset := t.Zone(); offset != 0 {
		return t.In(time.FixedZone("", offset)), nil
	}
	return t.UTC(), nil
}
