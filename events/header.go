package events

import "strings"

// DecodeWire is DecodeMessage for a message whose header is still the text in which
// NATS carries it. It makes no map of it, which is most of what reading an event
// costs, and reads only what EncodeBinary writes: for everything else, and whatever
// is wrong, ok is false and DecodeMessage has the answer. Strings of the event alias
// the header.
func DecodeWire(natsSubject, header string, payload []byte) (e Event, ok bool) {
	sub, err := ParseNATS(natsSubject)
	rest, begun := strings.CutPrefix(header, "NATS/1.0\r\n")
	if err != nil || !begun {
		return Event{}, false
	}
	d := decoder{event: Event{Subject: sub}, escapedID: natsSubject[strings.LastIndexByte(natsSubject, '.')+1:]}
	if len(payload) > 0 {
		d.event.Data = payload
	}
	for rest != "\r\n" {
		var line string
		line, rest, ok = strings.Cut(rest, "\r\n")
		if !ok || !d.line(line) {
			return Event{}, false
		}
	}
	if e, err = d.complete(); err == nil {
		e, err = e.settled()
	}
	return e, err == nil
}

// line takes a line of a header, and reports whether it could.
func (d *decoder) line(line string) bool {
	name, value, ok := strings.Cut(line, ": ")
	if !ok || name == "" || strings.ContainsAny(name, ": \t\n") || value == "" || value[0] == ' ' || value[0] == '\t' || strings.IndexByte(value, '\n') >= 0 {
		return false
	}
	switch {
	case strings.HasPrefix(name, headerPrefix):
		name = name[len(headerPrefix):]
		return lower(name) == name && name != "datacontenttype" && d.header(name, value) == nil
	case name == headerContentType:
		if d.event.ContentType != "" || hasFoldPrefix(value, structuredType) {
			return false
		}
		d.event.ContentType = value
		return true
	}
	return !hasFoldPrefix(name, headerPrefix) && !strings.EqualFold(name, headerContentType)
}
