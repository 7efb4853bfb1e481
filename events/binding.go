package events

import "strings"

// Names of headers. NATS treats them as case-sensitive: tally writes lower case
// and reads any.
const (
	headerPrefix      = "ce-"
	headerContentType = "Content-Type"
	specVersion       = "1.0"
	structuredType    = "application/cloudevents"
)

// EncodeBinary encodes an event as a NATS message in the binary mode of CloudEvents: one ce- header for each attribute,
// and the data unchanged. An erased event has no ce-subject and no Content-Type. The caller owns the header; data alias
// e.Data. The event must be valid (Validate).
func EncodeBinary(e Event) (header map[string][]string, data []byte) {
	header = make(map[string][]string, 8+len(e.Extensions))
	values := make([]string, 0, 8+len(e.Extensions)) // one array for all of them
	for name, value := range e.headers {
		values = append(values, value)
		n := len(values)
		header[name] = values[n-1 : n : n]
	}
	return header, e.Data
}

// AppendHeader appends the header of EncodeBinary to b in the text form of NATS: a line "name: value" for each field.
// The sender writes the line NATS/1.0 before them and the empty line after them.
func AppendHeader(b []byte, e Event) []byte {
	for name, value := range e.headers {
		b = append(append(b, name...), ": "...)
		b = append(append(b, value...), "\r\n"...)
	}
	return b
}

// headers yields the header's fields.
func (e Event) headers(yield func(name, value string) bool) {
	contentType, isErased := e.ContentType, e.Erased() != ""
	if contentType == "" && len(e.Data) > 0 && !isErased {
		contentType = ContentTypeJSON
	}
	ok := yield("ce-specversion", specVersion) &&
		yield("ce-id", percentEncode(e.ID)) &&
		yield("ce-source", percentEncode(e.Source)) &&
		yield("ce-type", percentEncode(e.Type)) &&
		(isErased || yield("ce-subject", e.Subject.String())) && // its escapes need no percent encoding
		(e.Time.IsZero() || yield("ce-time", formatTime(e.Time))) &&
		(e.DataSchema == "" || IsKnown(e.Type) || yield("ce-dataschema", percentEncode(e.DataSchema))) &&
		(contentType == "" || yield(headerContentType, contentType))
	if !ok {
		return
	}
	for name, value := range e.Extensions {
		if !yield(extensionHeader(name), percentEncode(value)) {
			return
		}
	}
}

// extensionHeader returns the header of an extension, without allocating for the extensions of tally itself.
func extensionHeader(name string) string {
	switch name {
	case ExtActor:
		return "ce-actor"
	case ExtCorrelationID:
		return "ce-correlationid"
	case ExtCausationID:
		return "ce-causationid"
	case ExtBasis:
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

// DecodeMessage decodes an event from a stored NATS message, in binary or in structured mode. The NATS subject alone
// determines the event's Subject; a ce-subject may be missing but must not contradict it. Strings and Data of the event
// alias the message. Headers that are not CloudEvents attributes are ignored. Attributes are checked, payloads are not.
// An error is an *InvalidError, and always the same one for the same message.
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
		e, err = decodeBinary(sub, natsSubject[strings.LastIndexByte(natsSubject, '.')+1:], contentType, header, payload)
	}
	if err != nil {
		return Event{}, err
	}
	return e.settled()
}

// settled returns the event without a redundant dataschema, and without the blanks of an erased event, if its attributes
// are valid.
func (e Event) settled() (Event, error) {
	if IsKnown(e.Type) {
		e.DataSchema = "" // follows from the type
	}
	if e.Erased() != "" {
		e.Data = unpadded(e.Data)
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

func decodeBinary(sub Subject, escapedID, contentType string, header map[string][]string, payload []byte) (Event, error) {
	d := decoder{event: Event{Subject: sub, ContentType: contentType}, escapedID: escapedID}
	if len(payload) > 0 {
		d.event.Data = payload
	}
	for name, values := range header {
		if !hasFoldPrefix(name, headerPrefix) {
			continue
		}
		// Of several errors the smallest is reported, whatever the map's order.
		if err := d.headers(lower(name[len(headerPrefix):]), values); err != nil && (d.err == nil || err.Error() < d.err.Error()) {
			d.err = err
		}
	}
	if d.err != nil {
		return Event{}, d.err
	}
	return d.complete()
}

// complete returns the event after all headers were added.
func (d *decoder) complete() (Event, error) {
	switch {
	case d.seen == 0 && d.event.Extensions == nil:
		return Event{}, invalid("specversion", "the message has no attributes of CloudEvents")
	case d.seen&seenSpecVersion == 0:
		return Event{}, invalid("specversion", "missing")
	}
	return d.event, nil
}

// contentTypeOf returns the value of Content-Type, in whatever case it is spelled.
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
		return "", invalid("datacontenttype", "the header Content-Type occurs %d times", found)
	case len(values) == 0:
		return "", nil
	}
	return values[0], nil
}

func hasFoldPrefix(s, prefix string) bool {
	return len(s) >= len(prefix) && (s[:len(prefix)] == prefix || strings.EqualFold(s[:len(prefix)], prefix))
}

// lower is strings.ToLower for ASCII. It keeps other letters, which the check of names refuses.
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
