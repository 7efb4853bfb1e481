//go:build !tally_inbox_random

package tavern

import "github.com/tallylog/tally/events"

// derivedID is the id of a message that its sender has an id of its own for.
func derivedID(from, key string) string { return events.DerivedID("message", from, key) }
