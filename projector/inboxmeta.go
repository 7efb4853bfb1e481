package projector

import (
	"fmt"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
)

// MessageMeta is the meta of a turn in an inbox. The turn itself is the body of the message. Unknown members are kept.
type MessageMeta struct {
	ID          string           `json:"id"` // unique within the inbox
	From        string           `json:"from"`
	To          string           `json:"to"`
	Type        string           `json:"type"`
	Thread      string           `json:"thread"`                // topic, a name chosen by the sender
	ReplyTo     string           `json:"replyTo,omitempty"`     // id of the message that it answers
	Correlation string           `json:"correlation,omitempty"` // an answer repeats it
	Expects     string           `json:"expects,omitempty"`     // type of the expected answer
	Deadline    events.Timestamp `json:"deadline,omitempty"`    // of the answer, by the log's time
	Class       string           `json:"class,omitempty"`       // quick or deep, of a question
	Bubble      []string         `json:"bubble,omitempty"`      // agents that forwarded it, first one first
	Amends      string           `json:"amends,omitempty"`      // id of the message that this text replaces
	Base        events.Offset    `json:"base,omitempty"`        // offset of the replaced text
	About       *MessageRef      `json:"about,omitempty"`       // the message that a notice or a malfunction is about
	Malfunction string           `json:"malfunction,omitempty"` // the reason, if the message reports a malfunction
	Unknown     events.Fields    `json:",unknown"`
}

// MessageRef identifies a message. Ids are unique within an inbox.
type MessageRef struct {
	Inbox   string        `json:"inbox"` // its receiver
	ID      string        `json:"id"`
	Unknown events.Fields `json:",unknown"`
}

// ParseMessageMeta decodes the meta of a turn. Missing members are not an error; Validate checks them before a message
// is sent.
func ParseMessageMeta(raw events.Raw) (MessageMeta, error) {
	var m MessageMeta
	if len(raw) == 0 {
		return m, &events.InvalidError{Field: "meta", Reason: "missing"}
	}
	if err := rawjson.Unmarshal(raw, &m); err != nil {
		return MessageMeta{}, &events.InvalidError{Field: "meta", Reason: err.Error()}
	}
	if _, ok := m.Deadline.Time(); m.Deadline != "" && !ok {
		return MessageMeta{}, &events.InvalidError{Field: "meta.deadline", Reason: fmt.Sprintf("%q is not an RFC 3339 time", string(m.Deadline))}
	}
	return m, nil
}

// Encode encodes the meta for ParseMessageMeta.
func (m MessageMeta) Encode() (events.Raw, error) {
	raw, err := rawjson.Marshal(m)
	if err != nil {
		return nil, &events.InvalidError{Field: "meta", Reason: err.Error()}
	}
	return raw, nil
}

// Validate returns an *events.InvalidError for a message that must not be sent. A message needs id, from, to, type and
// thread, names of at most events.MaxIDLen bytes, and no class but quick or deep. An unknown member must not have the
// name of a known one.
func (m MessageMeta) Validate() error {
	if err := m.checkNames(); err != nil {
		return err
	}
	for _, f := range []struct{ name, value string }{{"from", m.From}, {"to", m.To}, {"type", m.Type}, {"thread", m.Thread}, {"id", m.ID}} {
		if f.value == "" {
			return &events.InvalidError{Field: f.name, Reason: "missing: a message has from, to, type and thread"}
		}
	}
	if m.Class != "" && m.Class != "quick" && m.Class != "deep" {
		return &events.InvalidError{Field: "class", Reason: fmt.Sprintf("%q: want quick or deep", m.Class)}
	}
	raw, err := m.Encode()
	if err == nil {
		_, err = ParseMessageMeta(raw) // also detects duplicate members
	}
	return err
}

// checkNames refuses names that are too long for the programs that handle the message: a command receives them in its
// environment. From and To are parts of inbox ids and bounded there.
func (m MessageMeta) checkNames() error {
	names := []struct{ name, value string }{{"id", m.ID}, {"type", m.Type}, {"thread", m.Thread},
		{"replyTo", m.ReplyTo}, {"correlation", m.Correlation}, {"expects", m.Expects}, {"amends", m.Amends}, {"malfunction", m.Malfunction}}
	for _, through := range m.Bubble {
		names = append(names, struct{ name, value string }{"bubble", through})
	}
	if m.About != nil {
		names = append(names, struct{ name, value string }{"about.inbox", m.About.Inbox}, struct{ name, value string }{"about.id", m.About.ID})
	}
	for _, n := range names {
		if len(n.value) > events.MaxIDLen {
			return &events.InvalidError{Field: n.name, Reason: fmt.Sprintf("has %d bytes, at most %d are allowed", len(n.value), events.MaxIDLen)}
		}
	}
	return nil
}

// Awaits reports whether the sender awaits an answer.
func (m MessageMeta) Awaits() bool { return m.Amends == "" && (m.Expects != "" || m.Deadline != "") }

// Answers returns the sender of the answer and the id of the receiver's message that it answers, or "" if the message
// answers none. A malfunction counts as the answer of the receiver that it is about.
func (m MessageMeta) Answers() (from, id string) {
	switch {
	case m.ReplyTo == "" || m.Amends != "":
		return "", ""
	case m.About != nil && m.Malfunction != "":
		return m.About.Inbox, m.ReplyTo
	}
	return m.From, m.ReplyTo
}
