package tavern

import (
	"encoding/json"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/projector"
)

// Types of messages that this package makes. Senders choose others.
const (
	TypeNotice      = "notice"      // to a parent: a message passed over it; About names the message
	TypeMalfunction = "malfunction" // to a sender: a message failed; About names the message
	TypeReply       = "reply"       // of an answer, if neither side named a type
)

// Reasons of malfunctions.
const (
	MalfunctionType    = "type"    // an answer of another type than was expected
	MalfunctionOverdue = "overdue" // no answer came in time
	MalfunctionGone    = "gone"    // the receiver does not read any more
	MalfunctionRefused = "refused" // the receiver refused it again and again
)

// Delivery is the sender of malfunctions.
const Delivery = "delivery"

// Message is a message: a turn of the thread inbox of its receiver's session. The turn is the body, and the entry's
// meta has the other fields. From, To, Type and Thread are required; Send fills in an empty To.
type Message struct {
	ID          string // within its inbox; default: made from From and Key
	Key         string // the sender's own id: a message sent twice with it is stored once. Not stored itself
	From        string // an agent's id, User, or another sender
	To          string
	Type        string
	Thread      string          // topic: any name
	Body        json.RawMessage // any JSON; Text makes it from a text
	ReplyTo     string          // id of the message that this one answers
	Correlation string
	Expects     string    // type of the expected answer
	Deadline    time.Time // of the answer, by the log's time, or zero
	Class       string    // quick or deep
	Bubble      []string  // correspondents that it went through
	Meta        events.Fields

	// Set by reads.
	Offset      events.Offset // of the record with the message; pass it to Seen
	Revision    events.Offset // of its newest text; pass it to Amend
	Recorded    time.Time
	Amends      string                // id of the message that this one amends
	About       *projector.MessageRef // of a notice and a malfunction
	Malfunction string                // reason of a malfunction, or ""
	Bytes       []byte                // body of a message that another program appended as bytes
	Malformed   string                // why its meta cannot be read; the fields are empty then
}

// Text returns a text as the body of a message.
func Text(s string) json.RawMessage { return rawjson.AppendString(nil, s) }

// checkSent refuses fields that only amendments and notices set. With them a sender could answer questions to others,
// or amend their messages.
func (m Message) checkSent() error {
	for _, f := range []struct {
		name string
		said bool
	}{{"amends", m.Amends != ""}, {"about", m.About != nil}, {"malfunction", m.Malfunction != ""}} {
		if f.said {
			return &events.InvalidError{Field: f.name, Reason: "senders cannot set it"}
		}
	}
	return nil
}

// meta returns the fields of a message that are stored beside its body.
func (m Message) meta() projector.MessageMeta {
	meta := projector.MessageMeta{ID: m.ID, From: m.From, To: m.To, Type: m.Type, Thread: m.Thread, ReplyTo: m.ReplyTo, Correlation: m.Correlation,
		Expects: m.Expects, Class: m.Class, Bubble: m.Bubble, Amends: m.Amends, About: m.About, Malfunction: m.Malfunction, Unknown: m.Meta}
	if !m.Deadline.IsZero() {
		meta.Deadline = events.TimestampOf(m.Deadline)
	}
	return meta
}

// messageOf returns the message of a letter and its entry.
func messageOf(l projector.Letter, e events.Entry) Message {
	m := Message{ID: l.ID, From: l.From, To: l.To, Type: l.Type, Thread: l.Thread, Body: json.RawMessage(e.Turn), ReplyTo: l.ReplyTo, Correlation: l.Correlation,
		Expects: l.Expects, Class: l.Class, Bubble: l.Bubble, Meta: l.Unknown, Offset: l.Offset, Revision: l.Offset, Recorded: l.Recorded,
		Amends: l.Amends, About: l.About, Malfunction: l.Malfunction, Bytes: e.Bytes, Malformed: l.Malformed}
	m.Deadline, _ = l.Deadline.Time()
	return m
}

// messageSource is the source of every message, so that the same message from another process is the same event.
const messageSource = "urn:tally:message"

// eventOf returns the event that delivers a message.
func eventOf(ns, id string, meta projector.MessageMeta, body json.RawMessage) (events.Event, error) {
	if err := meta.Validate(); err != nil {
		return events.Event{}, err
	}
	raw, err := meta.Encode()
	if err != nil {
		return events.Event{}, err
	}
	if len(body) == 0 {
		return events.Event{}, &events.InvalidError{Field: "body", Reason: "missing: want any JSON; a text is a JSON string"}
	}
	sub := projector.InboxSubject(ns, meta.To)
	if err := sub.Validate(); err != nil {
		return events.Event{}, err
	}
	p := &events.TurnAppended{Entries: []events.Entry{{Thread: projector.InboxThread, Turn: events.Raw(body), ID: meta.ID, Meta: raw}}}
	e, err := events.New(messageSource, sub, p)
	e.ID = id
	return e, err
}

// eventID returns the id of the event that delivers a message. A UUID is its own event id, so that the log need not
// look up a new message's id in a long inbox. An id of another form may be unusable as an event's.
func eventID(id string) string {
	if isUUID(id) {
		return id
	}
	return events.DerivedID("message", id)
}

// derivedID returns the id of a message with the sender's own key.
func derivedID(from, key string) string {
	return events.DerivedID("message", from, key)
}

// isUUID reports whether an id is a UUID in lower case.
func isUUID(id string) bool {
	if len(id) != 36 {
		return false
	}
	for i := range len(id) {
		c := id[i]
		if dash := i == 8 || i == 13 || i == 18 || i == 23; dash != (c == '-') {
			return false
		} else if !dash && (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
