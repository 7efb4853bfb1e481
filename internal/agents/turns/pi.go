package turns

import (
	"encoding/json"

	"github.com/tallylog/tally/internal/rawjson"
)

// The entries of pi's session files: {type, id, parentId, timestamp}, around a message or
// what happened to the session.

func isPiEntry(o *object) bool {
	if o.word("timestamp") == "" || o.has("role", "sessionId", "uuid", "payload") {
		return false
	}
	switch o.word("type") {
	case "message":
		m, ok := open("", o.peek("message"))
		return ok && m.word("role") != ""
	case "compaction", "branch_summary":
		return o.word("summary") != "" && o.word("id") != ""
	case "custom_message":
		return o.word("customType") != "" && o.has("content")
	}
	return false
}

func readPiEntry(r *reading, o *object) {
	r.by("pi")
	kind := o.word("type")
	switch kind {
	case "message":
		m, _ := open("message", o.take("message"))
		readPiMessage(r, m)
	case "custom_message":
		readPiSpoken(r, "custom", o.text("customType"), o)
	default:
		r.add(Part{Role: "summary", Name: kind, Text: o.text("summary")})
	}
	r.leave(kind, o)
}

func readPiMessage(r *reading, m *object) {
	r.usage(m)
	r.turn.Model, r.turn.Response = m.text("model"), m.text("responseId")
	switch role := m.text("role"); role {
	case "toolResult":
		p := Part{Role: "tool", Name: m.text("toolName"), ID: m.text("toolCallId"), Error: m.isTrue("isError")}
		r.result(p, m.take("content"))
	case "bashExecution":
		r.call(Part{Role: "user", Name: "bash", Text: m.text("command")})
		r.result(Part{Role: "tool", Name: "bash", Error: m.count("exitCode") != 0}, m.take("output"))
	case "custom":
		readPiSpoken(r, role, m.text("customType"), m)
	case "branchSummary", "compactionSummary":
		r.add(Part{Role: "summary", Text: m.text("summary")})
	default:
		start := len(r.turn.Parts)
		readPiSpoken(r, role, "", m)
		r.separate(start, "meta")
	}
	if text := m.text("errorMessage"); text != "" {
		r.add(Part{Role: "error", Text: text})
	}
	r.leave("message", m)
}

// readPiSpoken reads the content of a message: a text or parts.
func readPiSpoken(r *reading, role, name string, o *object) {
	raw := o.take("content")
	if raw == nil {
		return
	}
	list, err := rawjson.Array(raw)
	if err != nil {
		list = []json.RawMessage{raw}
	}
	start := len(r.turn.Parts)
	readBlocks(r, role, list)
	if name != "" && start < len(r.turn.Parts) {
		r.turn.Parts[start].Name = name
	}
}

// piBlock is for the parts of a message that only pi has.
func piBlock(kind string, _ *object) readBlock {
	if kind == "toolCall" {
		return readCall
	}
	return nil
}
