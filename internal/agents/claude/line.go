package claude

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/rawjson"
)

// entry is an object of a line, with the members that the fold uses.
type entry struct {
	rawjson.Members
	kind    string // the member type
	subtype string
	uuid    string
	parent  string // uuid of the entry before
	root    bool   // the line has an explicit null parent
	side    bool   // of a sub-agent
	agent   string
	time    time.Time // zero: none
	spelled events.Timestamp
	message rawjson.Members
}

func newEntry(v rawjson.Members) entry {
	e := entry{Members: v, kind: v.Text("type"), subtype: v.Text("subtype"), uuid: v.Text("uuid"), parent: v.Text("parentUuid"), agent: v.Text("agentId")}
	parent, says := v.Get("parentUuid")
	e.root = says && string(parent) == "null"
	e.side = isTrue(v, "isSidechain")
	e.spelled = events.Timestamp(v.Text("timestamp"))
	if e.kind == "file-history-snapshot" && e.spelled == "" { // its time is inside
		e.spelled = events.Timestamp(v.Object("snapshot").Text("timestamp"))
	}
	if at, ok := e.spelled.Time(); ok && at.Year() > 0 {
		e.time = at
	} else {
		e.spelled = ""
	}
	if e.kind == "user" || e.kind == "assistant" {
		e.message = v.Object("message")
	}
	return e
}

func isTrue(v rawjson.Members, name string) bool {
	raw, _ := v.Get(name)
	return string(raw) == "true"
}

// wordOf maps types of lines with a single value to the member that has it.
var wordOf = map[string]string{
	"summary": "summary", "ai-title": "aiTitle", "custom-title": "customTitle", "tag": "tag", "agent-name": "agentName", "last-prompt": "lastPrompt",
}

// word returns the single value of the entry, "" if the type has none.
func (e *entry) word() string { return e.Text(wordOf[e.kind]) }

// instead returns the role of a text that the program wrote in the user's name: the summary of a conversation, or
// meta. It returns "" if the line is not marked so.
func instead(v rawjson.Members) string {
	switch {
	case isTrue(v, "isCompactSummary"):
		return "summary"
	case isTrue(v, "isMeta"), isTrue(v, "isVisibleInTranscriptOnly"):
		return "meta"
	}
	return ""
}

// isMessage reports whether the entry is a message of the user, the model or a tool.
func (e *entry) isMessage() bool {
	return e.kind == "user" || e.kind == "assistant" || e.kind == "attachment" && isQueued(e.Object("attachment"))
}

// isQueued reports whether an attachment is a prompt that the user wrote while the model worked. The model receives
// it with the next result of a tool.
func isQueued(attachment rawjson.Members) bool { return attachment.Text("type") == "queued_command" }

// blocks returns the parts of the message, nil if it is a text.
func (e *entry) blocks() []rawjson.Members {
	content, _ := e.message.Get("content")
	list, err := rawjson.Array(content)
	if err != nil {
		return nil
	}
	var blocks []rawjson.Members
	for _, raw := range list {
		if b, err := rawjson.Object(raw); err == nil {
			blocks = append(blocks, b)
		}
	}
	return blocks
}

// token reports whether a text can be part of an id.
func token(s string) bool { return agents.IsToken(s, "._:-") }

// keyed returns an id as part of a key: the id, or a hash of it.
func keyed(id string) string {
	if token(id) {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:8])
}

// jsonString returns a text as JSON.
func jsonString(s string) json.RawMessage { return rawjson.AppendString(nil, s) }

// startsWith reports whether a text begins with one of several prefixes.
func startsWith(s string, prefixes ...string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(s, p) {
			return true
		}
	}
	return false
}

// isDuration reports whether a value is a whole number of milliseconds.
func isDuration(raw []byte) bool {
	return len(raw) > 0 && len(raw) < 16 && len(bytes.Trim(raw, "0123456789")) == 0
}
