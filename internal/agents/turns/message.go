package turns

import (
	"github.com/tallylog/tally/internal/rawjson"
)

// isStep recognises {input: message, output: [message...]}, a step of tally-evals.
func isStep(o *object) bool {
	messages, ok := o.elements("output")
	return ok && all(append(messages, o.peek("input")), isMember)
}

func readStep(r *reading, o *object) {
	readMember(r, o.take("input"))
	for _, raw := range o.list("output") {
		readMember(r, raw)
	}
	r.leave("step", o)
	r.turn.Shape = "step" // whoever made its messages
}

// isMember recognises a message inside a turn.
func isMember(o *object) bool { return isVariant(o) || isUIMessage(o) || isMessage(o) }

// readMember reads what isMember recognised.
func readMember(r *reading, raw []byte) {
	switch o, _ := open("", raw); {
	case isVariant(o):
		readVariant(r, o)
	case isUIMessage(o):
		readUIMessage(r, o)
	default:
		readMessage(r, o)
	}
}

// isMessage recognises {role, content}, also with the names that an older Go encoder
// wrote, and a message that has something instead of the content.
func isMessage(o *object) bool {
	if o.word("role") == "" && o.word("Role") == "" {
		return false
	}
	for _, m := range o.members {
		switch m.Name {
		case "content", "Content", "tool_calls", "function_call", "refusal", "toolInvocations":
			return true
		}
	}
	return false
}

// readMessage reads a message of any maker.
func readMessage(r *reading, o *object) { readSpoken(r, roleOf(o.text("role", "Role")), o) }

// roleOf is a maker's word for who speaks in the word that most use.
func roleOf(role string) string {
	switch role {
	case "human":
		return "user"
	case "ai", "model":
		return "assistant"
	case "function":
		return "tool"
	}
	return role
}

// readSpoken reads what somebody says in a message: what one maker has and another has
// not is looked for in each.
func readSpoken(r *reading, role string, o *object) {
	start := len(r.turn.Parts)
	if r.turn.Model == "" {
		r.turn.Model = o.text("model")
	}
	r.usage(o)
	if thought := o.text("reasoning_content", "reasoning"); thought != "" {
		r.add(Part{Kind: Reasoning, Role: role, Text: thought})
	}
	if isAnswer(role, o) {
		readAnswer(r, role, o)
	} else {
		readContents(r, role, o)
	}
	readChatMembers(r, role, o)
	readInvocations(r, role, o)
	readAttachments(r, role, o)
	readStop(r, role, o)
	if len(r.turn.Parts) == start && !o.has("content", "Content") && !isEmpty(o) {
		r.add(Part{Role: role})
	}
	if start < len(r.turn.Parts) && r.turn.Parts[start].Kind == Said && r.turn.Parts[start].Name == "" {
		r.turn.Parts[start].Name = o.text("name")
	}
	r.leave(role, o)
}

// isEmpty reports whether the content is a list of no parts.
func isEmpty(o *object) bool {
	for _, m := range o.members {
		if m.Name == "content" || m.Name == "Content" {
			list, err := rawjson.Array(m.Value)
			return err == nil && len(list) == 0
		}
	}
	return false
}

// readContents reads the content of a message: a text, parts, or something else.
func readContents(r *reading, role string, o *object) {
	raw := o.take("content", "Content")
	if raw == nil {
		return
	}
	if text, err := rawjson.String(raw); err == nil {
		if text != "" || !o.has("tool_calls", "function_call", "refusal", "parts", "toolInvocations") {
			r.add(Part{Role: role, Text: text})
		}
		return
	}
	list, err := rawjson.Array(raw)
	if err != nil {
		r.keep(role, raw)
		return
	}
	readBlocks(r, role, list)
}

// isAnswer reports whether a message is what a tool answered, and not a list of such.
func isAnswer(role string, o *object) bool {
	_, isList := o.elements("content")
	return o.word("tool_call_id") != "" || role == "tool" && o.has("content") && !isList
}

// readAnswer reads a message that is what a tool answered.
func readAnswer(r *reading, role string, o *object) {
	if o.has("tool_call_id") {
		r.by("openai")
	}
	p := Part{Role: role, Name: o.text("name", "tool_name"), ID: o.text("tool_call_id")}
	p.Error = o.isTrue("is_error") || o.word("status") == "error"
	r.result(p, o.take("content"))
}
