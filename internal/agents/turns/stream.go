package turns

import (
	"strings"

	"github.com/tallylog/tally/internal/agents/shapes"
	"github.com/tallylog/tally/internal/rawjson"
)

// The lines that agents print while they work, as a recorder keeps them, and the recorder's
// own: {"type":"tally.exec", ...}. Claude Code prints its lines much as it files them, and Gemini
// CLI its messages as most do; what is here is Codex' items, Gemini CLI's tools, pi's events.

// isFrame recognises a line of the recorder's: what was run, or how it ended.
func isFrame(o *shapes.Object) bool { return o.Word("type") == "tally.exec" }

func readFrame(r *shapes.Reading, o *shapes.Object) {
	list, begins := o.Elements("command")
	words := make([]string, len(list))
	for i, raw := range list {
		words[i], _ = rawjson.String(raw)
	}
	switch {
	case begins:
		o.Take("command")
		r.Add(shapes.Part{Role: "command", Name: o.Text("cwd"), Text: strings.Join(words, " ")})
	case o.Word("signal") != "":
		r.Add(shapes.Part{Role: "exit", Text: o.Text("signal")})
	default:
		r.Add(shapes.Part{Role: "exit", Text: o.Value("exit")})
	}
	r.Leave("command", o)
}

// isStreamItem recognises what codex exec prints: an item, or an error.
func isStreamItem(o *shapes.Object) bool {
	switch o.Word("type") {
	case "item.started", "item.updated", "item.completed":
		return o.IsObject("item")
	case "turn.failed":
		return o.IsObject("error")
	case "error":
		return o.Word("message") != "" && !o.Has("timestamp")
	}
	return false
}

func readStreamItem(r *shapes.Reading, o *shapes.Object) {
	r.By("codex")
	switch o.Word("type") {
	case "error":
		r.Add(shapes.Part{Role: "error", Text: o.Text("message")})
	case "turn.failed":
		e, _ := o.Object("error")
		r.Add(shapes.Part{Role: "error", Text: e.Text("message")})
	default:
		raw := o.Take("item")
		item, _ := shapes.Open("codex-item", raw)
		if readCodexItem(r, item) {
			r.Leave(item.Word("type"), item)
		} else {
			r.Keep(item.Word("type"), raw)
		}
	}
	r.Leave("error", o)
}

// readCodexItem reads an item; false if it is of no known type.
func readCodexItem(r *shapes.Reading, item *shapes.Object) bool {
	call := shapes.Part{Role: "assistant", Name: item.Word("type"), ID: item.Word("id")}
	answer := shapes.Part{Role: "tool", Name: call.Name, ID: call.ID, Error: item.Word("status") == "failed"}
	switch call.Name {
	case "agent_message":
		r.Add(shapes.Part{Role: "assistant", Text: item.Text("text")})
	case "reasoning":
		r.Add(shapes.Part{Kind: shapes.Reasoning, Role: "assistant", Text: item.Text("text")})
	case "error":
		r.Add(shapes.Part{Role: "error", Text: item.Text("message")})
	case "command_execution":
		call.Text = item.Text("command")
		r.Call(call)
		if item.Word("status") != "in_progress" {
			answer.Error = answer.Error || item.Count("exit_code") != 0
			r.Result(answer, item.Take("aggregated_output"))
		}
	case "file_change":
		call.Text = item.Value("changes")
		r.Call(call)
		if answer.Error {
			r.Result(answer, nil)
		}
	case "mcp_tool_call":
		readCodexTool(r, item, call, answer)
	case "web_search":
		call.Text = item.Text("query")
		r.Call(call)
	case "todo_list":
		shapes.ReadElements(r, "plan", item.List("items"), readTodo)
	default:
		return false
	}
	return true
}

// readCodexTool reads a call of a server's tool with what came of it.
func readCodexTool(r *shapes.Reading, item *shapes.Object, call, answer shapes.Part) {
	call.Name = strings.Trim(item.Text("server")+"/"+item.Text("tool"), "/")
	call.Text, answer.Name = item.Value("arguments"), call.Name
	r.Call(call)
	if e, ok := item.Object("error"); ok {
		answer.Error = true
		answer.Text = e.Text("message")
		r.Result(answer, nil)
		return
	}
	if result, ok := item.Object("result"); ok {
		r.Result(answer, result.Take("content"))
	}
}

// readTodo reads a thing to do.
func readTodo(r *shapes.Reading, role string, e *shapes.Object) {
	name := "pending"
	if e.IsTrue("completed") {
		name = "completed"
	}
	r.Add(shapes.Part{Role: role, Name: name, Text: e.Text("text")})
}

// isGeminiEvent recognises what Gemini CLI prints of tools, errors and the end.
func isGeminiEvent(o *shapes.Object) bool {
	if o.Word("timestamp") == "" {
		return false
	}
	switch o.Word("type") {
	case "tool_use":
		return o.Word("tool_name") != ""
	case "tool_result":
		return o.Word("tool_id") != ""
	case "error":
		return o.Word("message") != ""
	case "result":
		return o.Word("status") != "" && o.IsObject("error")
	}
	return false
}

func readGeminiEvent(r *shapes.Reading, o *shapes.Object) {
	r.By("gemini-cli")
	kind := o.Word("type")
	switch kind {
	case "tool_use":
		r.Call(shapes.Part{Role: "assistant", Name: o.Text("tool_name"), ID: o.Text("tool_id"), Text: o.Value("parameters")})
	case "tool_result":
		p := shapes.Part{Role: "tool", ID: o.Text("tool_id"), Error: o.Word("status") == "error"}
		raw := o.Take("output")
		if e, ok := o.Object("error"); ok && raw == nil {
			p.Text = e.Text("message")
		}
		r.Result(p, raw)
	case "error":
		r.Add(shapes.Part{Role: "error", Name: o.Text("severity"), Text: o.Text("message")})
	default:
		e, _ := o.Object("error")
		r.Add(shapes.Part{Role: "error", Text: e.Text("message")})
	}
	r.Leave(kind, o)
}

// isPiEvent recognises the end of a message that pi prints.
func isPiEvent(o *shapes.Object) bool {
	m, ok := shapes.Open("", o.Peek("message"))
	return ok && o.Word("type") == "message_end" && m.Word("role") != ""
}

func readPiEvent(r *shapes.Reading, o *shapes.Object) {
	r.By("pi")
	m, _ := shapes.Open("message", o.Take("message"))
	readPiMessage(r, m)
	r.Leave("message", o)
}
