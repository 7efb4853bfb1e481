package perstack

import (
	"weak"

	"github.com/tallylog/tally"
)

// Remembers reports whether the original's functions cache jobs of a store.
func Remembers(st weak.Pointer[tally.Store]) bool {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	return shared.byStore[st] != nil
}

// MaxMemories is the maximum number of cached jobs of a store.
const MaxMemories = maxMemories
