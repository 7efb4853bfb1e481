package tavern

import (
	"encoding/json"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/projector"
)

// Types of messages that are made here. Others are their senders' choice.
const (
	TypeNotice      = "notice"      // to a parent: a message went past it; About names it
	TypeMalfunction = "malfunction" // to a sender: About names the message that it is about
	TypeReply       = "reply"       // of an answer, if nobody said which
)

// Why a message is marked as a malfunction.
const (
	MalfunctionType    = "type"    // an answer of another type than was expected
	MalfunctionOverdue = "overdue" // no answer came in time
	MalfunctionGone    = "gone"    // the receiver does not read any more
	MalfunctionRefused = "refused" // the receiver refused it again and again
)

// Delivery is who malfunctions come from.
const Delivery = "delivery"

// Message is a message: a turn of the thread inbox of its receiver's session, with the body
// as the turn and what else is here in the entry's meta. From, To, Type and Thread are what
// each needs; To may be left to the inbox that it is sent to.
type Message struct {
	ID          string // of the message in its inbox; default: made of From and Key
	Key         string // its sender's own id: with it, the same message sent twice is one. Not stored
	From        string // an agent's id, User, or who else sends
	To          string
	Type        string
	Thread      string          // what it is about: any name
	Body        json.RawMessage // any JSON; Text makes one of a text
	ReplyTo     string          // id of the message that it answers
	Correlation string
	Expects     string    // type of the answer that is awaited
	Deadline    time.Time // of the answer, by the log's time; zero: none
	Class       string    // quick or deep
	Bubble      []string  // who it went through
	Meta        events.Fields

	// What reading a message gives.
	Offset      events.Offset // of the record that brought it: what Seen takes
	Revision    events.Offset // of its newest text: what Amend takes
	Recorded    time.Time
	Amends      string                // id of the message that this is a newer text of
	About       *projector.MessageRef // of a notice and a malfunction
	Malfunction string                // why it is one, "" if it is not
	Bytes       []byte                // body of a message that somebody appended as bytes
	Malformed   string                // why its meta cannot be read: it has none then
}

// Text returns the body of a message that is a text.
func Text(s string) json.RawMessage { return rawjson.AppendString(nil, s) }

// checkSent refuses what no sender says of a message, but who amends one or tells of it: it
// would answer questions that were put to others, or be the newer text of a message of theirs.
func (m Message) checkSent() error {
	for _, f := range []struct {
		name string
		said bool
	}{{"amends", m.Amends != ""}, {"about", m.About != nil}, {"malfunction", m.Malfunction != ""}} {
		if f.said {
			return &events.InvalidError{Field: f.name, Reason: "it is not for a sender to say"}
		}
	}
	return nil
}

// meta returns what of a message stands beside its body.
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

// messageSource is the source of every message, whoever sends it: so the same one from
// another process is the same event.
const messageSource = "urn:tally:message"

// eventOf returns the event that brings a message to its receiver.
func eventOf(ns, id string, meta projector.MessageMeta, body json.RawMessage) (events.Event, error) {
	if err := meta.Validate(); err != nil {
		return events.Event{}, err
	}
	raw, err := meta.Encode()
	if err != nil {
		return events.Event{}, err
	}
	if len(body) == 0 {
		return events.Event{}, &events.InvalidError{Field: "body", Reason: "missing: it is any JSON, and a text is a string"}
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

// eventID is the id of the event that brings a message. A UUID is its own, so that the log
// need not look up the ids of a long inbox for a message that was made just now; an id of
// any other form may be what no id of an event can.
func eventID(id string) string {
	if isUUID(id) {
		return id
	}
	return events.DerivedID("message", id)
}

// derivedID is the id of a message that its sender has an id of its own for.
func derivedID(from, key string) string {
	return events.DerivedID("message", from, key)
}

// isUUID reports whether an id has the form of a UUID in lower case.
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
