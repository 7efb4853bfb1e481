package ailoop

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/stores/ailoop/internal/chat"
)

// Role is the speaker of a message.
type Role string

// Roles of messages. There are no others.
const (
	RoleUser      Role = "User"
	RoleAssistant Role = "Assistant"
)

// Message is one message of a conversation: its JSON with typed views. The JSON keeps the order of its keys, the
// spelling of numbers and unknown members. A Message is immutable. The zero value is a message of the user without
// blocks.
type Message struct {
	raw events.Raw
}

// UserMessage returns a message of the user with one text. Bytes that are not UTF-8 become U+FFFD.
func UserMessage(text string) Message { return textMessage(RoleUser, text) }

// AssistantMessage returns a message of the assistant with one text. Bytes that are not UTF-8 become U+FFFD.
func AssistantMessage(text string) Message { return textMessage(RoleAssistant, text) }

func textMessage(role Role, text string) Message {
	b := append([]byte(`{"`), role...)
	b = append(b, `":{"blocks":[{"Text":{"text":`...)
	b = rawjson.AppendString(b, text)
	return Message{append(b, `}}]}}`...)}
}

// NewUserMessage returns a message of the user. An error names the block that cannot be written, because its text is
// not UTF-8, or a source or a result part is incomplete.
func NewUserMessage(blocks ...UserBlock) (Message, error) { return newMessage(RoleUser, blocks) }

// NewAssistantMessage returns a message of the assistant. An error names the block that cannot be written, because
// its text is not UTF-8, or its arguments are not JSON.
func NewAssistantMessage(blocks ...AssistantBlock) (Message, error) {
	return newMessage(RoleAssistant, blocks)
}

func newMessage[B Block](role Role, blocks []B) (Message, error) {
	b := append([]byte(`{"`), role...)
	b = append(b, `":{"blocks":[`...)
	for i, block := range blocks {
		if i > 0 {
			b = append(b, ',')
		}
		name, body := block.tagged()
		value, err := rawjson.Marshal(body)
		if err != nil {
			return Message{}, fmt.Errorf("tally: block %d, %s: %v", i, name, err)
		}
		b = append(rawjson.AppendString(append(b, '{'), name), ':')
		b = append(append(b, value...), '}')
	}
	return ParseMessage(append(b, `]}}`...))
}

// ParseMessage parses a message from JSON such as
//
//	{"User":{"blocks":[{"Text":{"text":"hi"}}]}}
//
// An error is a *SnapshotDecodeError.
func ParseMessage(data []byte) (Message, error) {
	raw := slices.Clone(rawjson.Trim(data))
	if err := chat.CheckMessage(raw); err != nil {
		return Message{}, chat.Located(data, err)
	}
	return Message{raw}, nil
}

// Raw returns the message's JSON.
func (m Message) Raw() json.RawMessage { return slices.Clone(m.bytes()) }

// MarshalJSON returns the message's JSON.
func (m Message) MarshalJSON() ([]byte, error) { return m.Raw(), nil }

// UnmarshalJSON is ParseMessage.
func (m *Message) UnmarshalJSON(data []byte) error {
	read, err := ParseMessage(data)
	if err == nil {
		*m = read
	}
	return err
}

// Equal reports whether both have the same tokens. White space between them does not count; the spelling of numbers
// and the order of keys do.
func (m Message) Equal(o Message) bool { return rawjson.Equal(m.bytes(), o.bytes()) }

// bytes returns the message's JSON, which callers must not change.
func (m Message) bytes() events.Raw {
	if m.raw == nil {
		return events.Raw(`{"User":{"blocks":[]}}`)
	}
	return m.raw
}

// Role returns the speaker.
func (m Message) Role() Role {
	role, _ := m.variant()
	return role
}

// variant returns the role and the body. The shape was checked when the message was made.
func (m Message) variant() (Role, events.Raw) {
	members, err := rawjson.Object(m.bytes())
	if err != nil || len(members) != 1 {
		panic("ailoop: not a message")
	}
	return Role(members[0].Name), members[0].Value
}

// Blocks returns the blocks of the message, in order.
func (m Message) Blocks() []Block {
	_, body := m.variant()
	var content struct {
		Blocks []events.Fields `json:"blocks"`
	}
	mustDecode(body, &content)
	list := make([]Block, len(content.Blocks))
	for i, block := range content.Blocks {
		list[i] = blockKinds[block[0].Name](block[0].Value)
	}
	return list
}

// Text returns the texts of the message, concatenated, without reasoning, calls and results of tools.
func (m Message) Text() string {
	text := ""
	for _, b := range m.Blocks() {
		if t, ok := b.(TextBlock); ok {
			text += t.Text
		}
	}
	return text
}

// toolIDs returns the ids of the calls that the message makes or answers.
func (m Message) toolIDs() map[string]bool {
	ids := make(map[string]bool)
	for _, b := range m.Blocks() {
		switch b := b.(type) {
		case ToolCallBlock:
			ids[b.ID] = true
		case ToolResultBlock:
			ids[b.CallID] = true
		}
	}
	return ids
}

// mustDecode decodes JSON of a known shape.
func mustDecode(raw events.Raw, v any) {
	if err := rawjson.Unmarshal(raw, v); err != nil {
		panic(fmt.Sprintf("ailoop: not a message: %v", err))
	}
}
