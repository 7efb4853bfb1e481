package turns

import (
	"strings"

	"github.com/tallylog/tally/internal/rawjson"
)

// readVariant reads a message whose one member is named after who speaks, and holds
// blocks of which each has one member named after its kind. errata writes them.
func readVariant(_ []byte, m rawjson.Members) (Turn, bool) {
	if len(m) != 1 || m[0].Name != "User" && m[0].Name != "Assistant" {
		return Turn{}, false
	}
	body, err := rawjson.Object(m[0].Value)
	if err != nil {
		return Turn{}, false
	}
	raw, _ := body.Get("blocks")
	blocks, err := rawjson.Array(raw)
	if err != nil {
		return Turn{}, false
	}
	role := strings.ToLower(m[0].Name)
	var t Turn
	for _, b := range blocks {
		t.Parts = append(t.Parts, readBlock(role, b))
	}
	if len(blocks) == 0 {
		t.Parts = []Part{{Role: role}}
	}
	return t, true
}

func readBlock(role string, raw []byte) Part {
	whole := Part{Kind: Other, Role: role, Text: spell(raw)}
	kinds, err := rawjson.Object(raw)
	if err != nil || len(kinds) != 1 {
		return whole
	}
	m, err := rawjson.Object(kinds[0].Value)
	if err != nil {
		return whole
	}
	switch kind := kinds[0].Name; kind {
	case "Text":
		return Part{Role: role, Text: m.Text("text")}
	case "Reasoning":
		return Part{Kind: Reasoning, Role: role, Text: m.Text("text")}
	case "RedactedReasoning":
		return Part{Kind: Reasoning, Role: role}
	case "ToolCall":
		return Part{Kind: Call, Role: role, Name: m.Text("name"), ID: m.Text("id"), Text: m.Compact("args")}
	case "ToolResult":
		return readBlockResult(role, m)
	case "Image", "Document":
		return Part{Kind: Media, Role: role, Media: strings.ToLower(kind), Bytes: int64(len(raw))}
	}
	return whole
}

// readBlockResult reads what a tool answered: its one text, or all of it as JSON.
func readBlockResult(role string, m rawjson.Members) Part {
	p := Part{Kind: Result, Role: role, ID: m.Text("id")}
	raw, _ := m.Get("content")
	content, err := rawjson.Object(raw)
	if err != nil {
		p.Text = string(raw)
		return p
	}
	p.Text = content.Compact("blocks")
	p.Error = content.Compact("is_error") == "true"
	if list, ok := content.Get("blocks"); ok {
		if parts, err := rawjson.Array(list); err == nil && len(parts) == 1 {
			if part, err := rawjson.Object(parts[0]); err == nil && part.Text("type") == "text" {
				p.Text = part.Text("text")
			}
		}
	}
	return p
}
