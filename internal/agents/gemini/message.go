package gemini

import (
	"crypto/sha256"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/agents/shapes"
	"github.com/tallylog/tally/internal/rawjson"
)

// objectOf parses a line of one object.
func objectOf(line []byte) (rawjson.Members, bool) {
	m, err := rawjson.Object(line)
	return m, err == nil
}

// message is a message of the list: {id, timestamp, type, content}, and more if it is the model's.
type message struct {
	rawjson.Members
	raw     json.RawMessage
	id      string
	kind    string // user, gemini, info, warning or error
	time    time.Time
	spelled events.Timestamp
	parts   []part
}

// messageOf reads a message. It returns false if the object has no id.
func messageOf(raw json.RawMessage, m rawjson.Members) (message, bool) {
	id, isText := textOf(m, "id")
	if !isText {
		return message{}, false
	}
	msg := message{Members: m, raw: raw, id: id, kind: m.Text("type"), parts: partsOf(m)}
	msg.spelled = events.Timestamp(m.Text("timestamp"))
	var ok bool
	if msg.time, ok = agents.ParseTime(string(msg.spelled)); !ok {
		msg.spelled = ""
	}
	return msg, true
}

// messagesOf reads a list of messages. It skips objects without an id. If several have the same id, the last one
// takes the position of the first.
func messagesOf(raw json.RawMessage) []message {
	list, err := rawjson.Array(raw)
	if err != nil {
		return nil
	}
	var out []message
	index := make(map[string]int)
	for _, elem := range list {
		m, isObject := objectOf(elem)
		msg, ok := messageOf(elem, m)
		if !isObject || !ok {
			continue
		}
		if i, again := index[msg.id]; again {
			out[i] = msg
			continue
		}
		index[msg.id] = len(out)
		out = append(out, msg)
	}
	return out
}

// part is a piece of a message's content.
type part struct {
	rawjson.Members
	raw  json.RawMessage // nil for a text
	text string
}

// partsOf reads the content: a text, a part, or several.
func partsOf(m rawjson.Members) []part {
	content, _ := m.Get("content")
	var parts []part
	for _, raw := range shapes.Several(content) {
		if text, err := rawjson.String(raw); err == nil {
			if text != "" {
				parts = append(parts, part{text: text})
			}
		} else if o, ok := objectOf(raw); ok {
			text, _ := textOf(o, "text")
			parts = append(parts, part{Members: o, raw: raw, text: text})
		}
	}
	return parts
}

func (p part) has(name string) bool {
	_, ok := p.Get(name)
	return ok
}

// isText reports whether the part has a text and nothing else.
func (p part) isText() bool {
	for _, m := range p.Members {
		if m.Name != "text" && m.Name != "thoughtSignature" {
			return false
		}
	}
	return true
}

func (p part) isThought() bool {
	raw, _ := p.Get("thought")
	return string(raw) == "true"
}

// words returns the text of a message.
func (m message) words() string {
	var b strings.Builder
	for _, p := range m.parts {
		if !p.isThought() {
			b.WriteString(p.text)
		}
	}
	return b.String()
}

// isAnswered reports whether the message has only results of tools.
func (m message) isAnswered() bool {
	return len(m.parts) > 0 && !slices.ContainsFunc(m.parts, func(p part) bool { return !p.has(functionResponse) })
}

// told has beginnings of messages that the program writes in the user's name.
var told = []string{"<session_context>", "<hook_context>"}

// isTold reports whether a text begins with one of told.
func isTold(text string) bool {
	text = strings.TrimSpace(text)
	return slices.ContainsFunc(told, func(begin string) bool { return strings.HasPrefix(text, begin) })
}

// isPrompt reports whether the message is a prompt of the user, by Gemini CLI's own rule, except for results of
// tools.
func (m message) isPrompt() bool {
	if m.kind != "user" || m.isAnswered() {
		return false
	}
	words := m.words()
	said := strings.TrimSpace(shapes.Words(words))
	for _, begin := range append([]string{"/", "?"}, told...) {
		if strings.HasPrefix(said, begin) {
			return false
		}
	}
	return said != "" || words == "" && len(m.parts) > 0
}

// calls returns the ids of the tools' calls, in the content, as in requests to the model, or beside it.
func (m message) calls() []string {
	var ids []string
	for _, p := range m.parts {
		if call := p.Object(functionCall); call != nil {
			ids = append(ids, call.Text("id"))
		}
	}
	beside, _ := m.Get("toolCalls")
	list, _ := rawjson.Array(beside)
	for _, raw := range list {
		if call, ok := objectOf(raw); ok {
			ids = append(ids, call.Text("id"))
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// sum is a hash, long enough to distinguish messages.
type sum [16]byte

func sumOf(parts ...string) sum {
	h := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return sum(h[:16])
}

// digest is kept of a message to detect changes.
type digest struct {
	whole sum // the whole message
	said  sum // the speaker, and the content without calls and thoughts
	calls sum
	tools sum // the calls beside the content, with the tools' results; zero: none
}

func (m message) digest() digest {
	said := []string{m.kind}
	text := ""
	for _, p := range m.parts {
		switch {
		case p.isThought(), p.has(functionCall):
		case p.isText():
			text += p.text
		default:
			raw, err := rawjson.DeleteMember(p.raw, "thoughtSignature")
			if err != nil {
				raw = p.raw // cannot happen: the part was parsed
			}
			said = append(said, "t"+text, "p"+string(rawjson.AppendCompact(nil, raw)))
			text = ""
		}
	}
	d := digest{whole: sumOf(string(rawjson.AppendCompact(nil, m.raw))), said: sumOf(append(said, "t"+text)...), calls: sumOf(m.calls()...)}
	if tools := m.Compact("toolCalls"); len(tools) > len("[]") && tools != "null" {
		d.tools = sumOf(tools)
	}
	return d
}

// covers reports whether a message has the whole content of another version. A resumed session sets messages with new
// times and without the members beside the content.
func (d digest) covers(newer digest) bool {
	return d.said == newer.said && d.calls == newer.calls && (newer.tools == sum{} || newer.tools == d.tools)
}

// textOf returns a member that is a text.
func textOf(m rawjson.Members, name string) (string, bool) {
	raw, ok := m.Get(name)
	if !ok {
		return "", false
	}
	text, err := rawjson.String(raw)
	return text, err == nil
}
