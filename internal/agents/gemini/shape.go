package gemini

import (
	"slices"

	"github.com/tallylog/tally/internal/agents/shapes"
	"github.com/tallylog/tally/internal/rawjson"
)

// The shape of Gemini CLI's session files: {id, timestamp, type, content}, and beside an answer the thoughts, the
// calls of tools and their results.

// Line is the shape of a message.
var Line = shapes.Shape{Name: program, Is: isLine, Read: readLine, Kept: true}

// program names the shapes of Gemini CLI, to distinguish them from those of the service.
const program = "gemini-cli"

func isLine(o *shapes.Object) bool {
	return roleOf(o.Word("type")) != "" && o.Word("id") != "" && o.Word("timestamp") != "" && o.Has("content") && !o.Has("role", "message")
}

// roleOf returns the role for a type of message, "" for any other type.
func roleOf(kind string) string {
	switch kind {
	case "gemini":
		return "assistant"
	case "user", "info", "warning", "error":
		return kind
	}
	return ""
}

func readLine(r *shapes.Reading, o *shapes.Object) {
	r.By(program)
	role := roleOf(o.Word("type"))
	r.Turn.Model = o.Text("model")
	if u, ok := o.Object("tokens"); ok {
		r.Turn.Response, r.Turn.Usage = o.Text("id"), *countsOf(u.Members).tokens()
	}
	shapes.ReadElements(r, role, o.List("thoughts"), readThought)
	start := len(r.Turn.Parts)
	readContents(r, speaker(role, o), o)
	r.Separate(start, "meta")
	for _, raw := range o.List("toolCalls") {
		if call, ok := shapes.Open("toolCalls", raw); ok {
			readTool(r, role, call)
			r.Leave(role, call)
		} else {
			r.Keep(role, raw)
		}
	}
	r.Leave(role, o)
}

func readThought(r *shapes.Reading, role string, t *shapes.Object) {
	r.Add(shapes.Part{Kind: shapes.Reasoning, Role: role, Text: shapes.Join(t.Text("subject"), t.Text("description"))})
}

// speaker returns the role of the content. If the program wrote it in the user's name, the role is meta.
func speaker(role string, o *shapes.Object) string {
	list, _ := o.Elements("content")
	first := o.Word("content")
	if len(list) > 0 {
		if p, ok := shapes.Open("", list[0]); ok {
			first = p.Word("text")
		}
	}
	if role == "user" && isTold(first) {
		return "meta"
	}
	return role
}

// readContents reads the content: a text, a part, or several.
func readContents(r *shapes.Reading, role string, o *shapes.Object) {
	list := shapes.Several(o.Take("content"))
	for _, raw := range list {
		p, ok := shapes.Open("", raw)
		switch text, err := rawjson.String(raw); {
		case err == nil && (text != "" || len(list) > 1):
			r.Add(shapes.Part{Role: role, Text: text})
		case ok:
			readPart(r, role, p)
			r.Leave(role, p)
		case err != nil:
			r.Keep(role, raw)
		}
	}
}

// readTool reads a call with its result.
func readTool(r *shapes.Reading, role string, o *shapes.Object) {
	call := shapes.CallOf(role, o)
	r.Call(call)
	if !o.Has("result") {
		return
	}
	answer := shapes.Part{Role: "tool", Name: call.Name, ID: call.ID, Error: slices.Contains([]string{"error", "cancelled"}, o.Word("status"))}
	raw := o.Take("result")
	list, err := rawjson.Array(raw)
	if err != nil || !shapes.All(list, func(p *shapes.Object) bool { return p.IsObject(functionResponse) }) || len(list) == 0 {
		r.Result(answer, raw)
		return
	}
	start := len(r.Turn.Parts)
	shapes.ReadElements(r, answer.Role, list, readPart)
	for i := range r.Turn.Parts[start:] {
		r.Turn.Parts[start+i].Error = r.Turn.Parts[start+i].Error || answer.Error
	}
}
