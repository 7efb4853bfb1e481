package turns

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
)

// The shape of Gemini CLI's session files: {id, timestamp, type, content}, and beside an
// answer what was thought, which tools were called and what they answered.

func isGeminiMessage(o *object) bool {
	return geminiRole(o.word("type")) != "" && o.word("id") != "" && o.word("timestamp") != "" && o.has("content") && !o.has("role", "message")
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

func readGeminiMessage(r *reading, o *object) {
	r.by("gemini-cli")
	role := geminiRole(o.word("type"))
	r.turn.Model = o.text("model")
	if u, ok := o.object("tokens"); ok {
		r.turn.Response, r.turn.Usage = o.text("id"), geminiCounts(u)
	}
	readElements(r, role, o.list("thoughts"), readGeminiThought)
	start := len(r.turn.Parts)
	readGeminiParts(r, geminiSpeaker(role, o), o)
	r.separate(start, "meta")
	for _, raw := range o.list("toolCalls") {
		if call, ok := open("toolCalls", raw); ok {
			readGeminiTool(r, role, call)
			r.leave(role, call)
		} else {
			r.keep(role, raw)
		}
	}
	r.leave(role, o)
}

// geminiCounts: the input includes what was cached; what was thought and what tools brought
// stand beside.
func geminiCounts(u *object) events.Tokens {
	thoughts := u.count("thoughts")
	t := disjoint(u.count("input"), 0, 0, u.count("cached"), 0)
	t.Input += u.count("tool")
	t.Output, t.Reasoning = u.count("output")+thoughts, thoughts
	return t
}

func readGeminiThought(r *reading, role string, t *object) {
	r.add(Part{Kind: Reasoning, Role: role, Text: join(t.text("subject"), t.text("description"))})
}

// geminiSpeaker returns who says the content: what the program tells the model in the
// person's place is said by nobody.
func geminiSpeaker(role string, o *object) string {
	list, _ := o.elements("content")
	first := o.word("content")
	if len(list) > 0 {
		if p, ok := open("", list[0]); ok {
			first = p.word("text")
		}
	}
	if begin := strings.TrimSpace(first); role == "user" && (strings.HasPrefix(begin, "<session_context>") || strings.HasPrefix(begin, "<hook_context>")) {
		return "meta"
	}
	return role
}

// readGeminiParts reads the content: a text, a part, or several.
func readGeminiParts(r *reading, role string, o *object) {
	raw := o.take("content")
	list, err := rawjson.Array(raw)
	if err != nil {
		list = []json.RawMessage{raw}
	}
	for _, raw := range list {
		p, ok := open("", raw)
		switch text, err := rawjson.String(raw); {
		case err == nil && (text != "" || len(list) > 1):
			r.add(Part{Role: role, Text: text})
		case ok:
			readGeminiPart(r, role, p)
			r.leave(role, p)
		case err != nil:
			r.keep(role, raw)
		}
	}
}

// readGeminiTool reads a call with what came of it.
func readGeminiTool(r *reading, role string, o *object) {
	call := callOf(role, o)
	r.call(call)
	if !o.has("result") {
		return
	}
	answer := Part{Role: "tool", Name: call.Name, ID: call.ID, Error: slices.Contains([]string{"error", "cancelled"}, o.word("status"))}
	raw := o.take("result")
	list, err := rawjson.Array(raw)
	if err != nil || !all(list, func(p *object) bool { return p.isObject("functionResponse") }) || len(list) == 0 {
		r.result(answer, raw)
		return
	}
	start := len(r.turn.Parts)
	readElements(r, answer.Role, list, readGeminiPart)
	for i := range r.turn.Parts[start:] {
		r.turn.Parts[start+i].Error = r.turn.Parts[start+i].Error || answer.Error
	}
}
