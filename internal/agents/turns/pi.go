package turns

import (
	"encoding/json"

	"github.com/tallylog/tally/internal/rawjson"
)

// The entries of pi's session files: {type, id, parentId, timestamp}, around a message or
// what happened to the session.

func isPiEntry(o *Object) bool {
	if o.Word("timestamp") == "" || o.Has("role", "sessionId", "uuid", "payload") {
		return false
	}
	switch o.Word("type") {
	case "message":
		m, ok := Open("", o.Peek("message"))
		return ok && m.Word("role") != ""
	case "compaction", "branch_summary":
		return o.Word("summary") != "" && o.Word("id") != ""
	case "custom_message":
		return o.Word("customType") != "" && o.Has("content")
	}
	return false
}

func readPiEntry(r *Reading, o *Object) {
	r.By("pi")
	kind := o.Word("type")
	switch kind {
	case "message":
		m, _ := Open("message", o.Take("message"))
		readPiMessage(r, m)
	case "custom_message":
		readPiSpoken(r, "custom", o.Text("customType"), o)
	default:
		r.Add(Part{Role: "summary", Name: kind, Text: o.Text("summary")})
	}
	r.Leave(kind, o)
}

func readPiMessage(r *Reading, m *Object) {
	r.Usage(m)
	r.Turn.Model, r.Turn.Response = m.Text("model"), m.Text("responseId")
	switch role := m.Text("role"); role {
	case "toolResult":
		p := Part{Role: "tool", Name: m.Text("toolName"), ID: m.Text("toolCallId"), Error: m.IsTrue("isError")}
		r.Result(p, m.Take("content"))
	case "bashExecution":
		r.Call(Part{Role: "user", Name: "bash", Text: m.Text("command")})
		r.Result(Part{Role: "tool", Name: "bash", Error: m.Count("exitCode") != 0}, m.Take("output"))
	case "custom":
		readPiSpoken(r, role, m.Text("customType"), m)
	case "branchSummary", "compactionSummary":
		r.Add(Part{Role: "summary", Text: m.Text("summary")})
	default:
		start := len(r.Turn.Parts)
		readPiSpoken(r, role, "", m)
		r.Separate(start, "meta")
	}
	if text := m.Text("errorMessage"); text != "" {
		r.Add(Part{Role: "error", Text: text})
	}
	r.Leave("message", m)
}

// readPiSpoken reads the content of a message: a text or parts.
func readPiSpoken(r *Reading, role, name string, o *Object) {
	raw := o.Take("content")
	if raw == nil {
		return
	}
	list, err := rawjson.Array(raw)
	if err != nil {
		list = []json.RawMessage{raw}
	}
	start := len(r.Turn.Parts)
	ReadBlocks(r, role, list)
	if name != "" && start < len(r.Turn.Parts) {
		r.Turn.Parts[start].Name = name
	}
}
