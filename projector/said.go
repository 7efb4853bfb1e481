package projector

import (
	"unicode/utf8"

	"github.com/tallylog/tally/events"
)

// Said is the content of a turn, as far as views use it. A function that knows the formats of turns produces it, so
// views need not know them.
type Said struct {
	Roles string // speakers, separated by spaces
	Text  string // searchable text; "": nothing to find

	Model    string        // model that produced the turn; "": unknown
	Response string        // the vendor's id of the response; "": none
	Usage    events.Tokens // tokens of the response; zero: unknown
	Terms    events.Terms  // terms of the price
	Tools    []ToolUse     // in the order of the turn
}

// ToolUse is a tool call, or the error result of a call. Other results are not listed.
type ToolUse struct {
	Tool  string
	Call  string // id that joins a call and its result; "": none
	Error bool   // it is an error result
}

// Cut shortens a text to at most limit bytes, between two characters.
func Cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}
