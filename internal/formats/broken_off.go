//go:build !tally_tree_broken

package formats

// isBroken reports whether the build is broken on purpose in a way that a law must notice.
func isBroken(string) bool { return false }
