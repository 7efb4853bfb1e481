package events

import "strings"

// DecodeWire is DecodeMessage for a message whose header is still in the text form of NATS. It makes no map of it,
// which is most of the cost of decoding an event. It handles only headers as EncodeBinary writes them. For all others,
// valid or not, ok is false and the caller uses DecodeMessage. Strings of the event alias the header.
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

// line adds a line of a header. It returns false if it cannot.
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
