package render

import (
	"unicode/utf8"

	"github.com/tallylog/tally/events"
)

// ID returns an id for output: unchanged, or escaped if it is not UTF-8.
func ID(id string) string {
	if utf8.ValidString(id) {
		return id
	}
	return events.EscapeID(id)
}
