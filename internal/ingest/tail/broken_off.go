//go:build !tally_tail_early && !tally_tail_headless

package tail

// Builds that are broken on purpose set one of these: see TestBrokenBuilds.
const (
	brokenAck  = false // what is delivered counts as acknowledged
	brokenHead = false // the beginning of a file is not compared
)
