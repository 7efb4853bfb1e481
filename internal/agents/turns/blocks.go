package turns

import (
	"encoding/json"

	"github.com/tallylog/tally/internal/rawjson"
)

// readBlock reads a part of a message, an object with a type.
type readBlock func(r *reading, role string, b *object)

// blockOf returns how a part of a type is read, and who has parts of that type: "" if
// several makers do. It returns nil for an unknown type.
func blockOf(b *object) (maker string, read readBlock) {
	kind := b.word("type")
	for _, m := range []struct {
		name string
		read func(kind string, b *object) readBlock
	}{
		{"", commonBlock}, {"ai-sdk", sdkBlock}, {"openai", chatBlock}, {"openai-responses", itemBlock}, {"anthropic", anthropicBlock}, {"langchain", chainBlock}, {"perstack", perstackBlock}, {"pi", piBlock},
	} {
		if read := m.read(kind, b); read != nil {
			return m.name, read
		}
	}
	return "", nil
}

// commonBlock is for the types that several makers have, or nobody who is known here.
func commonBlock(kind string, _ *object) readBlock {
	switch kind {
	case "text":
		return readText
	case "thinking", "reasoning":
		return readReasoning
	case "image", "file", "document", "audio", "video":
		return readMedia
	case "toolCallPart":
		return readCall
	case "toolResultPart":
		return readToolResult
	}
	return nil
}

// readBlocks reads the parts of a message.
func readBlocks(r *reading, role string, list []json.RawMessage) {
	for _, raw := range list {
		b, ok := open("", raw)
		if !ok {
			if text, err := rawjson.String(raw); err == nil {
				r.add(Part{Role: role, Text: text})
			} else {
				r.keep(role, raw)
			}
			continue
		}
		maker, read := blockOf(b)
		if read == nil {
			r.keep(role, raw)
			continue
		}
		if maker != "" {
			r.by(maker)
		}
		read(r, role, b)
		r.leave(role, b)
	}
}

// readElements reads objects that say in no type what they are, and keeps what is none.
func readElements(r *reading, role string, list []json.RawMessage, read readBlock) {
	for _, raw := range list {
		b, ok := open("", raw)
		if !ok {
			r.keep(role, raw)
			continue
		}
		read(r, role, b)
		r.leave(role, b)
	}
}

// areBlocks reports whether a list is one of parts, all of known types.
func areBlocks(list []json.RawMessage) bool {
	return len(list) > 0 && all(list, func(b *object) bool {
		_, read := blockOf(b)
		return read != nil
	})
}

func readText(r *reading, role string, b *object) {
	r.add(Part{Role: role, Text: b.text("text")})
}

// readReasoning reads what a model thought, whole, in a summary or withheld.
func readReasoning(r *reading, role string, b *object) {
	text := b.text("thinking", "text", "reasoning")
	for _, name := range []string{"summary", "content"} {
		for _, raw := range b.list(name) {
			if part, ok := open("", raw); ok {
				text = join(text, part.text("text"))
				r.leave(role, part)
			} else {
				text = join(text, words(raw))
			}
		}
	}
	r.add(Part{Kind: Reasoning, Role: role, Text: text})
}

// join puts a text behind another, an empty line between them.
func join(text, more string) string {
	if text == "" || more == "" {
		return text + more
	}
	return text + "\n\n" + more
}

// callOf takes what there is of a call; makers differ in the names only.
func callOf(role string, b *object) Part {
	return Part{Role: role, Name: b.text("toolName", "name"), ID: b.text("toolCallId", "call_id", "id"), Text: b.value("input", "args", "arguments")}
}

func readCall(r *reading, role string, b *object) { r.call(callOf(role, b)) }

// readToolResult reads what a tool answered, as a part of a message.
func readToolResult(r *reading, role string, b *object) {
	p := Part{Role: role, Name: b.text("toolName", "name"), ID: b.text("toolCallId", "tool_use_id", "tool_call_id", "call_id", "id")}
	p.Error = b.isTrue("is_error", "isError") || b.word("status") == "error"
	r.result(p, b.take("output", "content", "result", "contents"))
}
