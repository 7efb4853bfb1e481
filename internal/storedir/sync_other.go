//go:build !linux

package storedir

// GroupSyncs reports whether a sync of the block files alone is enough. No test shows this for this system.
func GroupSyncs(string) bool { return false }
