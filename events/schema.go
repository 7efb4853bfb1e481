package events

import (
	"embed"
	"strings"
)

//go:embed schema/*.json
var schemas embed.FS

// Schema returns the JSON Schema (2020-12) of a type's payload, whose $id is DataSchema(typ). Schema(ExtDoc) is the
// schema of the extension. It returns false for document.written, whose data are the document's own bytes, and for
// types outside the vocabulary.
//
// A schema describes a single value. Decode and Validate also check rules that JSON Schema cannot express: a whole
// number must not be written 1.0 or 1e2, names must not repeat, a day must exist in its month, lengths count bytes,
// reasoning tokens must not exceed output tokens, and a kept stretch must not end before its start.
func Schema(typ string) ([]byte, bool) {
	if typ != ExtDoc && DataSchema(typ) == "" {
		return nil, false
	}
	name := strings.TrimPrefix(typ, "tally.")
	if typ == ExtDoc {
		name += ".v1"
	}
	text, err := schemas.ReadFile("schema/" + name + ".json")
	return text, err == nil
}
