package tavern

import (
	"iter"
	"strings"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
)

// Roles of messages. Any other role is read as the person's.
const (
	RoleUser      = "user"
	RoleAssistant = "assistant"
	RoleSystem    = "system"
)

// StoredMessage is a message of a transcript.
type StoredMessage struct {
	ID        string // its uuid
	ParentID  string // of the message that it follows, or ""
	SessionID string
	Role      string // one of the roles
	Content   string // its texts and the results of its tools, joined by line breaks
	Blocks    []StoredBlock
	Timestamp time.Time // the file's modification time if the line has none
	CWD       string
	Version   string
	Raw       events.Raw // the entry, byte for byte
}

// StoredBlock is a part of a message. If its type is not listed below, only Type and Raw are set.
type StoredBlock struct {
	Type    string     // text, tool_use, tool_result, or another
	Text    string     // of a text; of a result, its texts joined by line breaks
	ID      string     // of a tool_use; of a result, that of its tool_use
	Name    string     // of the tool of a tool_use
	Input   events.Raw // of a tool_use
	IsError bool       // of a result
	Raw     events.Raw // byte for byte, pictures of a result included
}

// transcriptEntry is a JSON object of a line.
type transcriptEntry struct{ rawjson.Members }

// role returns the message's role, or "" if the entry is not a message.
func (e transcriptEntry) role() string { return e.Object("message").Text("role") }

// time returns the entry's time, or zero.
func (e transcriptEntry) time() time.Time {
	at, ok := events.Timestamp(e.Text("timestamp")).Time()
	if !ok || at.Year() <= 0 {
		return time.Time{}
	}
	return at
}

func roleOf(said string) string {
	switch said {
	case RoleAssistant, RoleSystem:
		return said
	}
	return RoleUser
}

// parseLine returns the JSON objects of a line, and whether the line has other content. A line has several objects if
// two processes wrote it at the same time.
func parseLine(line []byte) (list []transcriptEntry, corrupt bool) {
	if isBlank(line) {
		return nil, false
	}
	if v, err := rawjson.Object(line); err == nil {
		return []transcriptEntry{{v}}, false
	}
	all, rest := rawjson.Objects(line)
	for _, v := range all {
		list = append(list, transcriptEntry{v})
	}
	return list, len(list) == 0 || !isBlank(rest)
}

func entriesOf(line []byte) []transcriptEntry {
	list, _ := parseLine(line)
	return list
}

// ParseTranscriptLine yields the messages of a line. It yields nothing if the line is not a message, has no uuid or
// cannot be parsed. The messages share the line's bytes.
func ParseTranscriptLine(line []byte) iter.Seq[StoredMessage] {
	return func(yield func(StoredMessage) bool) {
		list := entriesOf(line)
		for _, e := range list {
			m, ok := spokenOf(e)
			if len(list) == 1 {
				m.Raw = rawjson.Trim(line)
			}
			if ok && !yield(m) {
				return
			}
		}
	}
}

func spokenOf(e transcriptEntry) (m StoredMessage, ok bool) {
	role, id := e.role(), e.Text("uuid")
	if role == "" || id == "" {
		return m, false
	}
	m = StoredMessage{ID: id, ParentID: e.Text("parentUuid"), SessionID: e.Text("sessionId"), Role: roleOf(role), Timestamp: e.time(), CWD: e.Text("cwd"), Version: e.Text("version")}
	content, _ := e.Object("message").Get("content")
	if said, err := rawjson.String(content); err == nil {
		m.Content = said
		m.Blocks = []StoredBlock{{Type: "text", Text: said, Raw: content}}
		return m, true
	}
	var said []string
	for _, b := range blocksOf(content) {
		m.Blocks = append(m.Blocks, b)
		if b.Text != "" {
			said = append(said, b.Text)
		}
	}
	m.Content = strings.Join(said, "\n")
	return m, true
}

// blocksOf returns the parts of a content that is a list.
func blocksOf(content events.Raw) (blocks []StoredBlock) {
	list, err := rawjson.Array(content)
	if err != nil {
		return nil
	}
	for _, raw := range list {
		o, err := rawjson.Object(raw)
		if err != nil {
			blocks = append(blocks, StoredBlock{Raw: raw}) // a part of an unknown kind
			continue
		}
		blocks = append(blocks, blockOf(o, raw))
	}
	return blocks
}

func blockOf(o rawjson.Members, raw events.Raw) StoredBlock {
	b := StoredBlock{Type: o.Text("type"), Raw: raw}
	switch b.Type {
	case "text":
		b.Text = o.Text("text")
	case "tool_use":
		b.ID, b.Name = o.Text("id"), o.Text("name")
		b.Input, _ = o.Get("input")
	case "tool_result":
		b.ID = o.Text("tool_use_id")
		failed, _ := o.Get("is_error")
		b.IsError = string(failed) == "true"
		content, _ := o.Get("content")
		b.Text = resultOf(content)
	}
	return b
}

// resultOf returns the text of a tool's result, which is a string or a list of parts.
func resultOf(content events.Raw) string {
	if said, err := rawjson.String(content); err == nil {
		return said
	}
	var said []string
	for _, b := range blocksOf(content) {
		if b.Type == "text" {
			said = append(said, b.Text)
		}
	}
	return strings.Join(said, "\n")
}
