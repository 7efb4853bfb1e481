package shapes

import (
	"encoding/json"
)

// ReadBlock reads a part of a message, an object with a type.
type ReadBlock func(r *Reading, role string, b *Object)

// blockOf returns the reader for the type of a part, and the maker that uses the type, "" if several do. For an
// unknown type it returns nil.
func blockOf(b *Object) (maker string, read ReadBlock) {
	kind := b.Word("type")
	for _, m := range []struct {
		name string
		read func(kind string, b *Object) ReadBlock
	}{
		{"", commonBlock}, {"ai-sdk", sdkBlock}, {"openai", chatBlock}, {"openai-responses", itemBlock}, {"anthropic", anthropicBlock}, {"langchain", chainBlock}, {"perstack", perstackBlock}, {"pi", piBlock},
	} {
		if read := m.read(kind, b); read != nil {
			return m.name, read
		}
	}
	return "", nil
}

// commonBlock handles the types that several makers use, or that no known maker uses.
func commonBlock(kind string, _ *Object) ReadBlock {
	switch kind {
	case "text":
		return ReadText
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

// piBlock handles the types of parts that only pi has.
func piBlock(kind string, _ *Object) ReadBlock {
	if kind == "toolCall" {
		return readCall
	}
	return nil
}

// ReadBlocks reads the parts of a message.
func ReadBlocks(r *Reading, role string, list []json.RawMessage) {
	for _, raw := range list {
		b, ok := Open("", raw)
		if !ok {
			if text, ok := textOf(raw); ok {
				r.Add(Part{Role: role, Text: text})
			} else {
				r.Keep(role, raw)
			}
			continue
		}
		maker, read := blockOf(b)
		if read == nil {
			r.Keep(role, raw)
			continue
		}
		if maker != "" {
			r.By(maker)
		}
		read(r, role, b)
		r.Leave(role, b)
	}
}

// ReadElements reads objects without a type, and keeps other values as JSON.
func ReadElements(r *Reading, role string, list []json.RawMessage, read ReadBlock) {
	for _, raw := range list {
		b, ok := Open("", raw)
		if !ok {
			r.Keep(role, raw)
			continue
		}
		read(r, role, b)
		r.Leave(role, b)
	}
}

// areBlocks reports whether a list is not empty and has only parts of known types.
func areBlocks(list []json.RawMessage) bool {
	return len(list) > 0 && All(list, func(b *Object) bool {
		_, read := blockOf(b)
		return read != nil
	})
}

func ReadText(r *Reading, role string, b *Object) {
	r.Add(Part{Role: role, Text: b.Text("text")})
}

// readReasoning reads a model's reasoning, which is complete, summarised or withheld.
func readReasoning(r *Reading, role string, b *Object) {
	text := b.Text("thinking", "text", "reasoning")
	for _, name := range []string{"summary", "content"} {
		for _, raw := range b.List(name) {
			if part, ok := Open("", raw); ok {
				text = Join(text, part.Text("text"))
				r.Leave(role, part)
			} else {
				text = Join(text, TextOf(raw))
			}
		}
	}
	r.Add(Part{Kind: Reasoning, Role: role, Text: text})
}

// Join appends a text to another, separated by an empty line.
func Join(text, more string) string {
	if text == "" || more == "" {
		return text + more
	}
	return text + "\n\n" + more
}

// CallOf takes the members of a call. Makers use different names for them.
func CallOf(role string, b *Object) Part {
	return Part{Role: role, Name: b.Text("toolName", "name"), ID: b.Text("toolCallId", "call_id", "id"), Text: b.Value("input", "args", "arguments")}
}

func readCall(r *Reading, role string, b *Object) { r.Call(CallOf(role, b)) }

// readToolResult reads the result of a tool that is a part of a message.
func readToolResult(r *Reading, role string, b *Object) {
	p := Part{Role: role, Name: b.Text("toolName", "name"), ID: b.Text("toolCallId", "tool_use_id", "tool_call_id", "call_id", "id")}
	p.Error = b.IsTrue("is_error", "isError") || b.Word("status") == "error"
	r.Result(p, b.Take("output", "content", "result", "contents"))
}
