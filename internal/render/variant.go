package render

import (
	"strings"

	"github.com/tallylog/tally/internal/plain"
	"github.com/tallylog/tally/internal/rawjson"
)

// variant reads a message whose one member is named after who speaks, and holds
// blocks of which each has one member named after its kind.
func variant(members rawjson.Members) ([]Line, bool) {
	if len(members) != 1 || members[0].Name != "User" && members[0].Name != "Assistant" {
		return nil, false
	}
	body, err := rawjson.Object(members[0].Value)
	if err != nil {
		return nil, false
	}
	raw, _ := body.Get("blocks")
	blocks, err := rawjson.Array(raw)
	if err != nil {
		return nil, false
	}
	var lines []Line
	for _, b := range blocks {
		lines = append(lines, block(strings.ToLower(members[0].Name), b))
	}
	if len(lines) == 0 {
		lines = []Line{{strings.ToLower(members[0].Name), "(nothing)"}}
	}
	return lines, true
}

func block(role string, raw []byte) Line {
	whole := Line{role, string(rawjson.AppendCompact(nil, raw))}
	kinds, err := rawjson.Object(raw)
	if err != nil || len(kinds) != 1 {
		return whole
	}
	members, err := rawjson.Object(kinds[0].Value)
	if err != nil {
		return whole
	}
	switch kinds[0].Name {
	case "Text":
		return Line{role, members.Text("text")}
	case "Reasoning":
		return Line{role, "(thinking) " + members.Text("text")}
	case "RedactedReasoning":
		return Line{role, "(thinking, redacted)"}
	case "ToolCall":
		return Line{"call", members.Text("name") + " " + compact(members, "args")}
	case "ToolResult":
		return Line{"result", toolResult(members)}
	case "Image", "Document":
		return Line{role, "(" + strings.ToLower(kinds[0].Name) + ", " + plain.Bytes(int64(len(raw))) + ")"}
	}
	return whole
}

// toolResult returns what a tool answered: its one text, or all of it as JSON.
func toolResult(members rawjson.Members) string {
	raw, _ := members.Get("content")
	content, err := rawjson.Object(raw)
	if err != nil {
		return string(raw)
	}
	said := compact(content, "blocks")
	if list, ok := content.Get("blocks"); ok {
		if parts, err := rawjson.Array(list); err == nil && len(parts) == 1 {
			if part, err := rawjson.Object(parts[0]); err == nil && part.Text("type") == "text" {
				said = part.Text("text")
			}
		}
	}
	if compact(content, "is_error") == "true" {
		said = "error: " + said
	}
	return said
}
