package perstack

import (
	"weak"

	"github.com/tallylog/tally"
)

// Remembers reports whether the functions of the original remember jobs of a store.
func Remembers(st weak.Pointer[tally.Store]) bool {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	return shared.byStore[st] != nil
}

// MaxMemories bounds the jobs of each.
const MaxMemories = maxMemories
