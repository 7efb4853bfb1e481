package tree

import "github.com/tallylog/tally/events"

// reached is called at points where a crash leaves work for recovery. Tests end the process there.
var reached = func(point string) {}

// growth is called with the additions to an entry's files. Tests compare the result with a full rendering.
var growth = func(t *Tree, sub events.Subject, at events.Offset, list []wantedFile) {}
