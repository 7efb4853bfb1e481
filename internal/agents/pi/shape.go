package pi

import "github.com/tallylog/tally/internal/agents/shapes"

// The entries of pi's session files: {type, id, parentId, timestamp}, with a message or an event of the session.

// Line is the shape of an entry.
var Line = shapes.Shape{Name: agentName, Is: isLine, Read: readLine, Kept: true}

func isLine(o *shapes.Object) bool {
	if o.Word("timestamp") == "" || o.Has("role", "sessionId", "uuid", "payload") {
		return false
	}
	switch o.Word("type") {
	case "message":
		m, ok := shapes.Open("", o.Peek("message"))
		return ok && m.Word("role") != ""
	case "compaction", "branch_summary":
		return o.Word("summary") != "" && o.Word("id") != ""
	case "custom_message":
		return o.Word("customType") != "" && o.Has("content")
	}
	return false
}

func readLine(r *shapes.Reading, o *shapes.Object) {
	r.By(agentName)
	kind := o.Word("type")
	switch kind {
	case "message":
		m, _ := shapes.Open("message", o.Take("message"))
		readMessage(r, m)
	case "custom_message":
		readSpoken(r, "custom", o.Text("customType"), o)
	default:
		r.Add(shapes.Part{Role: "summary", Name: kind, Text: o.Text("summary")})
	}
	r.Leave(kind, o)
}

func readMessage(r *shapes.Reading, m *shapes.Object) {
	r.Usage(m)
	r.Turn.Model, r.Turn.Response = m.Text("model"), m.Text("responseId")
	switch role := m.Text("role"); role {
	case "toolResult":
		p := shapes.Part{Role: "tool", Name: m.Text("toolName"), ID: m.Text("toolCallId"), Error: m.IsTrue("isError")}
		r.Result(p, m.Take("content"))
	case "bashExecution":
		r.Call(shapes.Part{Role: "user", Name: "bash", Text: m.Text("command")})
		r.Result(shapes.Part{Role: "tool", Name: "bash", Error: m.Count("exitCode") != 0}, m.Take("output"))
	case "custom":
		readSpoken(r, role, m.Text("customType"), m)
	case "branchSummary", "compactionSummary":
		r.Add(shapes.Part{Role: "summary", Text: m.Text("summary")})
	default:
		start := len(r.Turn.Parts)
		readSpoken(r, role, "", m)
		r.Separate(start, "meta")
	}
	if text := m.Text("errorMessage"); text != "" {
		r.Add(shapes.Part{Role: "error", Text: text})
	}
	r.Leave("message", m)
}

// readSpoken reads the content of a message: a text or parts.
func readSpoken(r *shapes.Reading, role, kind string, o *shapes.Object) {
	raw := o.Take("content")
	if raw == nil {
		return
	}
	start := len(r.Turn.Parts)
	shapes.ReadBlocks(r, role, shapes.Several(raw))
	if kind != "" && start < len(r.Turn.Parts) {
		r.Turn.Parts[start].Name = kind
	}
}

// Printed is the shape of pi's output with --mode json.
var Printed = shapes.Shape{Name: agentName, Is: isPrinted, Read: readPrinted}

// isPrinted recognises the end of a message in pi's output.
func isPrinted(o *shapes.Object) bool {
	m, ok := shapes.Open("", o.Peek("message"))
	return ok && o.Word("type") == "message_end" && m.Word("role") != ""
}

func readPrinted(r *shapes.Reading, o *shapes.Object) {
	r.By(agentName)
	m, _ := shapes.Open("message", o.Take("message"))
	readMessage(r, m)
	r.Leave("message", o)
}
