package tavern

import (
	"crypto/rand"

	"github.com/tallylog/tally/events"
)

// derivedID is the id of a message that its sender has an id of its own for.
func derivedID(from, key string) string {
	if isBroken("inbox random") { // each time another one
		return rand.Text()
	}
	return events.DerivedID("message", from, key)
}
