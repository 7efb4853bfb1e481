package tree

import "github.com/tallylog/tally/events"

// reached is called where a crash leaves something to mend. Tests end the process there.
var reached = func(point string) {}

// growth is called with what is about to be put behind files of a unit. Tests compare it with
// what all of its files are to be.
var growth = func(t *Tree, unit events.Subject, at events.Offset, list []want) {}
