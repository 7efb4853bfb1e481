package shapes

import (
	"strings"

	"github.com/tallylog/tally/internal/rawjson"
)

// A Variant is a message of errata.
var Variant = Shape{Name: "variant", Is: isVariant, Read: readVariant}

// isVariant recognises a message of errata: its only member is named after the speaker and holds blocks, and each
// block has one member named after its kind.
func isVariant(o *Object) bool {
	if len(o.Members) != 1 || o.Members[0].Name != "User" && o.Members[0].Name != "Assistant" {
		return false
	}
	body, ok := Open("", o.Members[0].Value)
	if !ok {
		return false
	}
	_, ok = body.Elements("blocks")
	return ok
}

func readVariant(r *Reading, o *Object) {
	name := o.Members[0].Name
	role := strings.ToLower(name)
	body, _ := o.Object(name)
	blocks := body.List("blocks")
	for _, raw := range blocks {
		readVariantBlock(r, role, raw)
	}
	if len(blocks) == 0 {
		r.Add(Part{Role: role})
	}
	r.Leave(role, o)
}

func readVariantBlock(r *Reading, role string, raw []byte) {
	kinds, err := rawjson.Object(raw)
	if err != nil || len(kinds) != 1 {
		r.Keep(role, raw)
		return
	}
	b, ok := Open(kinds[0].Name, kinds[0].Value)
	if !ok {
		r.Keep(role, raw)
		return
	}
	switch kind := kinds[0].Name; kind {
	case "Text":
		r.Add(Part{Role: role, Text: b.Text("text")})
	case "Reasoning":
		r.Add(Part{Kind: Reasoning, Role: role, Text: b.Text("text")})
	case "RedactedReasoning":
		r.Add(Part{Kind: Reasoning, Role: role})
	case "ToolCall":
		r.Call(Part{Role: role, Name: b.Text("name"), ID: b.Text("id"), Text: b.Value("args")})
	case "ToolResult":
		readVariantResult(r, role, b)
	case "Image", "Document":
		r.Add(MediaOf(role, strings.ToLower(kind), b))
	default:
		r.Keep(role, raw)
		return
	}
	r.Leave(role, b)
}

// readVariantResult reads the result of a tool: {content: {blocks, is_error}}.
func readVariantResult(r *Reading, role string, b *Object) {
	p := Part{Role: role, ID: b.Text("call_id", "id")}
	content, ok := b.Object("content")
	if !ok {
		r.Result(p, b.Take("content"))
		return
	}
	p.Error = content.IsTrue("is_error")
	r.Result(p, content.Take("blocks"))
}
