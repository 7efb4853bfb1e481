package codex

import (
	"strings"

	"github.com/tallylog/tally/internal/agents/shapes"
)

// Printed is the shape of the output of codex exec --json: an item, or an error.
var Printed = shapes.Shape{Name: agentName, Is: isPrinted, Read: readPrinted}

// isPrinted recognises output of codex exec: an item, or an error.
func isPrinted(o *shapes.Object) bool {
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

func readPrinted(r *shapes.Reading, o *shapes.Object) {
	r.By(agentName)
	switch o.Word("type") {
	case "error":
		r.Add(shapes.Part{Role: "error", Text: o.Text("message")})
	case "turn.failed":
		e, _ := o.Object("error")
		r.Add(shapes.Part{Role: "error", Text: e.Text("message")})
	default:
		raw := o.Take("item")
		item, _ := shapes.Open("codex-item", raw)
		if readPrintedItem(r, item) {
			r.Leave(item.Word("type"), item)
		} else {
			r.Keep(item.Word("type"), raw)
		}
	}
	r.Leave("error", o)
}

// readPrintedItem reads an item. It returns false if the type is unknown.
func readPrintedItem(r *shapes.Reading, item *shapes.Object) bool {
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
		readPrintedTool(r, item, call, answer)
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

// readPrintedTool reads a call of a server's tool with its result.
func readPrintedTool(r *shapes.Reading, item *shapes.Object, call, answer shapes.Part) {
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

// readTodo reads an entry of a todo list.
func readTodo(r *shapes.Reading, role string, e *shapes.Object) {
	name := "pending"
	if e.IsTrue("completed") {
		name = "completed"
	}
	r.Add(shapes.Part{Role: role, Name: name, Text: e.Text("text")})
}
