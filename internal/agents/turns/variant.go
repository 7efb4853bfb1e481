package turns

import (
	"strings"

	"github.com/tallylog/tally/internal/rawjson"
)

// isVariant recognises a message whose one member is named after who speaks, and holds
// blocks of which each has one member named after its kind. errata writes them.
func isVariant(o *object) bool {
	if len(o.members) != 1 || o.members[0].Name != "User" && o.members[0].Name != "Assistant" {
		return false
	}
	body, ok := open("", o.members[0].Value)
	if !ok {
		return false
	}
	_, ok = body.elements("blocks")
	return ok
}

func readVariant(r *reading, o *object) {
	name := o.members[0].Name
	role := strings.ToLower(name)
	body, _ := o.object(name)
	blocks := body.list("blocks")
	for _, raw := range blocks {
		readVariantBlock(r, role, raw)
	}
	if len(blocks) == 0 {
		r.add(Part{Role: role})
	}
	r.leave(role, o)
}

func readVariantBlock(r *reading, role string, raw []byte) {
	kinds, err := rawjson.Object(raw)
	if err != nil || len(kinds) != 1 {
		r.keep(role, raw)
		return
	}
	b, ok := open(kinds[0].Name, kinds[0].Value)
	if !ok {
		r.keep(role, raw)
		return
	}
	switch kind := kinds[0].Name; kind {
	case "Text":
		r.add(Part{Role: role, Text: b.text("text")})
	case "Reasoning":
		r.add(Part{Kind: Reasoning, Role: role, Text: b.text("text")})
	case "RedactedReasoning":
		r.add(Part{Kind: Reasoning, Role: role})
	case "ToolCall":
		r.call(Part{Role: role, Name: b.text("name"), ID: b.text("id"), Text: b.value("args")})
	case "ToolResult":
		readVariantResult(r, role, b)
	case "Image", "Document":
		r.add(mediaOf(role, strings.ToLower(kind), b))
	default:
		r.keep(role, raw)
		return
	}
	r.leave(role, b)
}

// readVariantResult reads what a tool answered: {content: {blocks, is_error}}.
func readVariantResult(r *reading, role string, b *object) {
	p := Part{Role: role, ID: b.text("call_id", "id")}
	content, ok := b.object("content")
	if !ok {
		r.result(p, b.take("content"))
		return
	}
	p.Error = content.isTrue("is_error")
	r.result(p, content.take("blocks"))
}
