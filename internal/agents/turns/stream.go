package turns

import (
	"strings"

	"github.com/tallylog/tally/internal/rawjson"
)

// The lines that agents print while they work, as a recorder keeps them, and the recorder's
// own: {"type":"tally.exec", ...}. Claude Code prints its lines much as it files them, and Gemini
// CLI its messages as most do; what is here is Codex' items, Gemini CLI's tools, pi's events.

// isFrame recognises a line of the recorder's: what was run, or how it ended.
func isFrame(o *object) bool { return o.word("type") == "tally.exec" }

func readFrame(r *reading, o *object) {
	list, begins := o.elements("command")
	words := make([]string, len(list))
	for i, raw := range list {
		words[i], _ = rawjson.String(raw)
	}
	switch {
	case begins:
		o.take("command")
		r.add(Part{Role: "command", Name: o.text("cwd"), Text: strings.Join(words, " ")})
	case o.word("signal") != "":
		r.add(Part{Role: "exit", Text: o.text("signal")})
	default:
		r.add(Part{Role: "exit", Text: o.value("exit")})
	}
	r.leave("command", o)
}

// isStreamItem recognises what codex exec prints: an item, or an error.
func isStreamItem(o *object) bool {
	switch o.word("type") {
	case "item.started", "item.updated", "item.completed":
		return o.isObject("item")
	case "turn.failed":
		return o.isObject("error")
	case "error":
		return o.word("message") != "" && !o.has("timestamp")
	}
	return false
}

func readStreamItem(r *reading, o *object) {
	r.by("codex")
	switch o.word("type") {
	case "error":
		r.add(Part{Role: "error", Text: o.text("message")})
	case "turn.failed":
		e, _ := o.object("error")
		r.add(Part{Role: "error", Text: e.text("message")})
	default:
		raw := o.take("item")
		item, _ := open("codex-item", raw)
		if readCodexItem(r, item) {
			r.leave(item.word("type"), item)
		} else {
			r.keep(item.word("type"), raw)
		}
	}
	r.leave("error", o)
}

// readCodexItem reads an item; false if it is of no known type.
func readCodexItem(r *reading, item *object) bool {
	call := Part{Role: "assistant", Name: item.word("type"), ID: item.word("id")}
	answer := Part{Role: "tool", Name: call.Name, ID: call.ID, Error: item.word("status") == "failed"}
	switch call.Name {
	case "agent_message":
		r.add(Part{Role: "assistant", Text: item.text("text")})
	case "reasoning":
		r.add(Part{Kind: Reasoning, Role: "assistant", Text: item.text("text")})
	case "error":
		r.add(Part{Role: "error", Text: item.text("message")})
	case "command_execution":
		call.Text = item.text("command")
		r.call(call)
		if item.word("status") != "in_progress" {
			answer.Error = answer.Error || item.count("exit_code") != 0
			r.result(answer, item.take("aggregated_output"))
		}
	case "file_change":
		call.Text = item.value("changes")
		r.call(call)
		if answer.Error {
			r.result(answer, nil)
		}
	case "mcp_tool_call":
		readCodexTool(r, item, call, answer)
	case "web_search":
		call.Text = item.text("query")
		r.call(call)
	case "todo_list":
		readElements(r, "plan", item.list("items"), readTodo)
	default:
		return false
	}
	return true
}

// readCodexTool reads a call of a server's tool with what came of it.
func readCodexTool(r *reading, item *object, call, answer Part) {
	call.Name = strings.Trim(item.text("server")+"/"+item.text("tool"), "/")
	call.Text, answer.Name = item.value("arguments"), call.Name
	r.call(call)
	if e, ok := item.object("error"); ok {
		answer.Error = true
		answer.Text = e.text("message")
		r.result(answer, nil)
		return
	}
	if result, ok := item.object("result"); ok {
		r.result(answer, result.take("content"))
	}
}

// readTodo reads a thing to do.
func readTodo(r *reading, role string, e *object) {
	name := "pending"
	if e.isTrue("completed") {
		name = "completed"
	}
	r.add(Part{Role: role, Name: name, Text: e.text("text")})
}

// isGeminiEvent recognises what Gemini CLI prints of tools, errors and the end.
func isGeminiEvent(o *object) bool {
	if o.word("timestamp") == "" {
		return false
	}
	switch o.word("type") {
	case "tool_use":
		return o.word("tool_name") != ""
	case "tool_result":
		return o.word("tool_id") != ""
	case "error":
		return o.word("message") != ""
	case "result":
		return o.word("status") != "" && o.isObject("error")
	}
	return false
}

func readGeminiEvent(r *reading, o *object) {
	r.by("gemini-cli")
	kind := o.word("type")
	switch kind {
	case "tool_use":
		r.call(Part{Role: "assistant", Name: o.text("tool_name"), ID: o.text("tool_id"), Text: o.value("parameters")})
	case "tool_result":
		p := Part{Role: "tool", ID: o.text("tool_id"), Error: o.word("status") == "error"}
		raw := o.take("output")
		if e, ok := o.object("error"); ok && raw == nil {
			p.Text = e.text("message")
		}
		r.result(p, raw)
	case "error":
		r.add(Part{Role: "error", Name: o.text("severity"), Text: o.text("message")})
	default:
		e, _ := o.object("error")
		r.add(Part{Role: "error", Text: e.text("message")})
	}
	r.leave(kind, o)
}

// isPiEvent recognises the end of a message that pi prints.
func isPiEvent(o *object) bool {
	m, ok := open("", o.peek("message"))
	return ok && o.word("type") == "message_end" && m.word("role") != ""
}

func readPiEvent(r *reading, o *object) {
	r.by("pi")
	m, _ := open("message", o.take("message"))
	readPiMessage(r, m)
	r.leave("message", o)
}
