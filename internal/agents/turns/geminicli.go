package turns

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents/shapes"
	"github.com/tallylog/tally/internal/rawjson"
)

// The shape of Gemini CLI's session files: {id, timestamp, type, content}, and beside an
// answer what was thought, which tools were called and what they answered.

func isGeminiMessage(o *shapes.Object) bool {
	return geminiRole(o.Word("type")) != "" && o.Word("id") != "" && o.Word("timestamp") != "" && o.Has("content") && !o.Has("role", "message")
}

// geminiRole returns who speaks in a message of a type, "" if it is none.
func geminiRole(kind string) string {
	switch kind {
	case "gemini":
		return "assistant"
	case "user", "info", "warning", "error":
		return kind
	}
	return ""
}

func readGeminiMessage(r *shapes.Reading, o *shapes.Object) {
	r.By("gemini-cli")
	role := geminiRole(o.Word("type"))
	r.Turn.Model = o.Text("model")
	if u, ok := o.Object("tokens"); ok {
		r.Turn.Response, r.Turn.Usage = o.Text("id"), geminiCounts(u)
	}
	shapes.ReadElements(r, role, o.List("thoughts"), readGeminiThought)
	start := len(r.Turn.Parts)
	readGeminiParts(r, geminiSpeaker(role, o), o)
	r.Separate(start, "meta")
	for _, raw := range o.List("toolCalls") {
		if call, ok := shapes.Open("toolCalls", raw); ok {
			readGeminiTool(r, role, call)
			r.Leave(role, call)
		} else {
			r.Keep(role, raw)
		}
	}
	r.Leave(role, o)
}

// geminiCounts: the input includes what was cached; what was thought and what tools brought
// stand beside.
func geminiCounts(u *shapes.Object) events.Tokens {
	thoughts := u.Count("thoughts")
	t := events.Tokens{Input: u.Count("input"), CacheRead: u.Count("cached")}
	if t.CacheRead <= t.Input {
		t.Input -= t.CacheRead
	}
	t.Input += u.Count("tool")
	t.Output, t.Reasoning = u.Count("output")+thoughts, thoughts
	return t
}

func readGeminiThought(r *shapes.Reading, role string, t *shapes.Object) {
	r.Add(shapes.Part{Kind: shapes.Reasoning, Role: role, Text: shapes.Join(t.Text("subject"), t.Text("description"))})
}

// geminiSpeaker returns who says the content: what the program tells the model in the
// person's place is said by nobody.
func geminiSpeaker(role string, o *shapes.Object) string {
	list, _ := o.Elements("content")
	first := o.Word("content")
	if len(list) > 0 {
		if p, ok := shapes.Open("", list[0]); ok {
			first = p.Word("text")
		}
	}
	if begin := strings.TrimSpace(first); role == "user" && (strings.HasPrefix(begin, "<session_context>") || strings.HasPrefix(begin, "<hook_context>")) {
		return "meta"
	}
	return role
}

// readGeminiParts reads the content: a text, a part, or several.
func readGeminiParts(r *shapes.Reading, role string, o *shapes.Object) {
	raw := o.Take("content")
	list, err := rawjson.Array(raw)
	if err != nil {
		list = []json.RawMessage{raw}
	}
	for _, raw := range list {
		p, ok := shapes.Open("", raw)
		switch text, err := rawjson.String(raw); {
		case err == nil && (text != "" || len(list) > 1):
			r.Add(shapes.Part{Role: role, Text: text})
		case ok:
			readGeminiPart(r, role, p)
			r.Leave(role, p)
		case err != nil:
			r.Keep(role, raw)
		}
	}
}

// readGeminiTool reads a call with what came of it.
func readGeminiTool(r *shapes.Reading, role string, o *shapes.Object) {
	call := shapes.CallOf(role, o)
	r.Call(call)
	if !o.Has("result") {
		return
	}
	answer := shapes.Part{Role: "tool", Name: call.Name, ID: call.ID, Error: slices.Contains([]string{"error", "cancelled"}, o.Word("status"))}
	raw := o.Take("result")
	list, err := rawjson.Array(raw)
	if err != nil || !shapes.All(list, func(p *shapes.Object) bool { return p.IsObject("functionResponse") }) || len(list) == 0 {
		r.Result(answer, raw)
		return
	}
	start := len(r.Turn.Parts)
	shapes.ReadElements(r, answer.Role, list, readGeminiPart)
	for i := range r.Turn.Parts[start:] {
		r.Turn.Parts[start+i].Error = r.Turn.Parts[start+i].Error || answer.Error
	}
}
