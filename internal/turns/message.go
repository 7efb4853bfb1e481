package turns

import (
	"github.com/tallylog/tally/internal/rawjson"
)

// readStep reads {input: message, output: [message...]}, a step of tally-evals.
func readStep(_ []byte, m rawjson.Members) (Turn, bool) {
	input, hasInput := m.Get("input")
	output, hasOutput := m.Get("output")
	if !hasInput || !hasOutput {
		return Turn{}, false
	}
	outputs, err := rawjson.Array(output)
	t, ok := readMember(input)
	if !ok || err != nil {
		return Turn{}, false
	}
	for _, raw := range outputs {
		more, ok := readMember(raw)
		if !ok {
			return Turn{}, false
		}
		t.Parts = append(t.Parts, more.Parts...)
	}
	return t, true
}

// readMember reads a message inside a turn.
func readMember(raw []byte) (Turn, bool) {
	members, err := rawjson.Object(raw)
	if err != nil {
		return Turn{}, false
	}
	if t, ok := readVariant(raw, members); ok {
		return t, true
	}
	return readMessage(raw, members)
}

// readMessage reads {role, content}, also with the names that an older Go encoder wrote.
func readMessage(_ []byte, m rawjson.Members) (Turn, bool) {
	role := m.Text("role", "Role")
	content, ok := m.Get("content")
	if !ok {
		content, ok = m.Get("Content")
	}
	if role == "" || !ok {
		return Turn{}, false
	}
	if s, err := rawjson.String(content); err == nil {
		return Turn{Parts: []Part{{Role: role, Text: s}}}, true
	}
	parts, err := rawjson.Array(content)
	if err != nil {
		return Turn{Parts: []Part{{Kind: Other, Role: role, Text: spell(content)}}}, true
	}
	var t Turn
	for _, p := range parts {
		t.Parts = append(t.Parts, readPart(role, p))
	}
	return t, true
}

// readPart reads one part of a message's content.
func readPart(role string, raw []byte) Part {
	m, err := rawjson.Object(raw)
	if err != nil {
		return Part{Kind: Other, Role: role, Text: spell(raw)}
	}
	switch kind := m.Text("type"); kind {
	case "text":
		return Part{Role: role, Text: m.Text("text")}
	case "thinking", "reasoning":
		return Part{Kind: Reasoning, Role: role, Text: m.Text("thinking", "text", "reasoning")}
	case "tool-call", "tool_use", "toolCallPart":
		return Part{Kind: Call, Role: role, Name: m.Text("toolName", "name"), ID: m.Text("toolCallId", "id"), Text: m.Compact("input", "args")}
	case "tool-result", "tool_result", "toolResultPart":
		return Part{Kind: Result, Role: role, Name: m.Text("toolName"), ID: m.Text("toolCallId", "tool_use_id"), Text: resultOf(m)}
	case "image", "file", "document":
		return Part{Kind: Media, Role: role, Media: kind, Bytes: int64(len(raw))}
	}
	return Part{Kind: Other, Role: role, Text: spell(raw)}
}

// resultOf returns what a tool answered, without the wrapping {type, value}.
func resultOf(m rawjson.Members) string {
	if output, ok := m.Get("output"); ok {
		if wrapped, err := rawjson.Object(output); err == nil && len(wrapped) == 2 && wrapped.Text("type") != "" {
			if value := wrapped.Compact("value"); value != "" {
				return value
			}
		}
	}
	return m.Compact("output", "content", "result", "contents")
}
