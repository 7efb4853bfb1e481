package tavern

import (
	"iter"
	"strings"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
)

// Roles of messages. A role that is none of them is read as the person's.
const (
	RoleUser      = "user"
	RoleAssistant = "assistant"
	RoleSystem    = "system"
)

// StoredMessage is a message of a transcript.
type StoredMessage struct {
	ID        string // its uuid
	ParentID  string // of the message that it follows; "": none
	SessionID string
	Role      string // one of the roles
	Content   string // what its texts and the results of its tools say, one below the other
	Blocks    []StoredBlock
	Timestamp time.Time // of a line without one, when the file was written to
	CWD       string
	Version   string
	Raw       events.Raw // the transcriptEntry, byte for byte
}

// StoredBlock is a part of a message. Of a type that is none of those below only Type and Raw
// are set.
type StoredBlock struct {
	Type    string     // text, tool_use, tool_result, or another
	Text    string     // of a text; of a result, what its texts say, one below the other
	ID      string     // of a tool_use, and of the tool_use that a result is of
	Name    string     // of the tool of a tool_use
	Input   events.Raw // of a tool_use
	IsError bool       // of a result
	Raw     events.Raw // byte for byte, pictures of a result included
}

// transcriptEntry is an object of a line.
type transcriptEntry struct{ rawjson.Members }

// role is that of the message, "" if the entry is none.
func (e transcriptEntry) role() string { return e.Object("message").Text("role") }

// time is that of the transcriptEntry, zero if it says none.
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

// parseLine returns the objects of a line, several if two writers wrote it at once, and
// whether there is something in it that is none.
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

// ParseTranscriptLine yields the messages of a line: one, or none if it is no message, has no
// uuid or cannot be read. They share the line's bytes.
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
			blocks = append(blocks, StoredBlock{Raw: raw}) // what it is nobody says
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

// resultOf is what the result of a tool says, a text or a list of parts.
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
