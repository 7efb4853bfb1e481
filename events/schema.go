package events

import (
	"embed"
	"strings"
)

//go:embed schema/*.json
var schemas embed.FS

// Schema returns the JSON Schema (2020-12) of a type's payload, whose $id is
// DataSchema(typ); Schema(ExtDoc) is that of the extension. There is none for
// document.written, whose data are the document's own bytes, and none for types
// that are not of the vocabulary.
//
// A schema says what one value says of itself. Decode and Validate are stricter
// where JSON Schema has no words: a number that must be whole may not be written
// 1.0 or 1e2, no name may occur twice, a day must exist in its month, lengths
// count bytes, reasoning tokens do not exceed those of the output, and the end of
// a kept stretch is not below its start.
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
