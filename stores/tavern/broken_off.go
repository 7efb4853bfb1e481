//go:build !tally_tavern_broken

package tavern

// isBroken reports whether the build is broken on purpose in a way that a law must notice.
func isBroken(string) bool { return false }
