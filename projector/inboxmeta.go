package projector

import (
	"fmt"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
)

// MessageMeta is what the meta of a turn in an inbox says of the message; the turn itself
// is the body. What the vocabulary does not know is kept.
type MessageMeta struct {
	ID          string           `json:"id"` // that the inbox knows the message by
	From        string           `json:"from"`
	To          string           `json:"to"`
	Type        string           `json:"type"`
	Thread      string           `json:"thread"`                // what it is about: a name that its sender chose
	ReplyTo     string           `json:"replyTo,omitempty"`     // id of the message that it answers
	Correlation string           `json:"correlation,omitempty"` // what an answer is to repeat
	Expects     string           `json:"expects,omitempty"`     // type of the answer that is awaited
	Deadline    events.Timestamp `json:"deadline,omitempty"`    // of the answer, by the log's time
	Class       string           `json:"class,omitempty"`       // quick or deep, of a question
	Bubble      []string         `json:"bubble,omitempty"`      // who it went through, the first one first
	Amends      string           `json:"amends,omitempty"`      // id of the message that this is a newer text of
	Base        events.Offset    `json:"base,omitempty"`        // of the text that it takes the place of
	About       *MessageRef      `json:"about,omitempty"`       // the message that a notice or a malfunction is about
	Malfunction string           `json:"malfunction,omitempty"` // why it is one
	Unknown     events.Fields    `json:",unknown"`
}

// MessageRef names a message: ids are those of one inbox.
type MessageRef struct {
	Inbox   string        `json:"inbox"` // its receiver
	ID      string        `json:"id"`
	Unknown events.Fields `json:",unknown"`
}

// ParseMessageMeta reads the meta of a turn. What is missing is not an error: Validate
// says what a message needs to be sent.
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

// Encode writes what ParseMessageMeta reads.
func (m MessageMeta) Encode() (events.Raw, error) {
	raw, err := rawjson.Marshal(m)
	if err != nil {
		return nil, &events.InvalidError{Field: "meta", Reason: err.Error()}
	}
	return raw, nil
}

// Validate returns an *events.InvalidError for what must not be sent: without id, from, to,
// type or thread, with a name of more than events.MaxIDLen bytes, of another class than
// quick and deep, or with a field of its own by the name of one of these.
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
		_, err = ParseMessageMeta(raw) // also a field that is there twice
	}
	return err
}

// checkNames refuses names that are too long for those who handle the message: a command
// gets them in its environment. From and To are parts of the ids of inboxes, which are
// bounded as such.
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

// Answers returns who answered which message of the receiver's, "" if it answers none. A
// malfunction stands for the answer that did not come.
func (m MessageMeta) Answers() (from, id string) {
	switch {
	case m.ReplyTo == "" || m.Amends != "":
		return "", ""
	case m.About != nil && m.Malfunction != "":
		return m.About.Inbox, m.ReplyTo
	}
	return m.From, m.ReplyTo
}
