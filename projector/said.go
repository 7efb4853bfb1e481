package projector

import (
	"unicode/utf8"

	"github.com/tallylog/tally/events"
)

// Said is what a turn says, as far as views look at it. What makes it of a turn knows in
// which shapes turns are written; views do not.
type Said struct {
	Roles string // who speaks, with a space between two
	Text  string // what is searched; "" if there is nothing to be found

	Model    string        // that spoke, "" if the turn does not say so
	Response string        // the maker's id of the response, "" if there is none
	Usage    events.Tokens // that the response took, zero if the turn does not say so
	Terms    events.Terms  // on which terms
	Tools    []ToolUse     // in the order in which they stand in the turn
}

// ToolUse is a call of a tool, or the error that one ended with. Results that are no
// errors are not told.
type ToolUse struct {
	Tool  string
	Call  string // the id that joins both, "" if there is none
	Error bool   // it is the error
}

// Cut shortens a text to so many bytes at most, between two characters.
func Cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}
