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

// entry is what a value of a line says, as far as the fold asks.
type entry struct {
	rawjson.Members
	kind    string // the member type
	subtype string
	uuid    string
	parent  string // uuid of the entry that this one follows
	root    bool   // it says that it follows none
	side    bool   // of a sub-agent
	agent   string
	time    time.Time // zero: none is said
	spelled events.Timestamp
	message rawjson.Members
}

func newEntry(v rawjson.Members) entry {
	e := entry{Members: v, kind: v.Text("type"), subtype: v.Text("subtype"), uuid: v.Text("uuid"), parent: v.Text("parentUuid"), agent: v.Text("agentId")}
	parent, says := v.Get("parentUuid")
	e.root = says && string(parent) == "null"
	e.side = isTrue(v, "isSidechain")
	e.spelled = events.Timestamp(v.Text("timestamp"))
	if e.kind == "file-history-snapshot" && e.spelled == "" { // which has it inside
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

// wordOf names the member of lines that say one thing, by their type.
var wordOf = map[string]string{
	"summary": "summary", "ai-title": "aiTitle", "custom-title": "customTitle", "tag": "tag", "agent-name": "agentName", "last-prompt": "lastPrompt",
}

// word returns the one thing that the entry says, "" if it says none or more.
func (e *entry) word() string { return e.Text(wordOf[e.kind]) }

// instead returns the role of a text that the program wrote in the place of the person: the
// summary of a conversation, or meta. It returns "" if the line does not say so.
func instead(v rawjson.Members) string {
	switch {
	case isTrue(v, "isCompactSummary"):
		return "summary"
	case isTrue(v, "isMeta"), isTrue(v, "isVisibleInTranscriptOnly"):
		return "meta"
	}
	return ""
}

// isMessage reports whether somebody says something in the entry: the person, the model
// or a tool.
func (e *entry) isMessage() bool {
	return e.kind == "user" || e.kind == "assistant" || e.kind == "attachment" && isQueued(e.Object("attachment"))
}

// isQueued reports whether an attachment is a prompt that the person wrote while the model
// worked, and that it was given with what a tool answered.
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

// keyed is an id as part of a key: itself, or a hash of it.
func keyed(id string) string {
	if token(id) {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:8])
}

// text is a value that is a text.
func text(s string) json.RawMessage { return rawjson.AppendString(nil, s) }

// startsWith reports whether a text begins with one of several.
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
