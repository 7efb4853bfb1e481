//go:build !tally_tree_broken

package tree

// What a broken build does instead; see broken_on.go.
const (
	trustsTime = false
	forgets    = false
	echoes     = false
)
