//go:build tally_tail_headless

package tail

// This file is in no product. The test of random histories builds with it, to show that it
// would notice: the beginning of a file is not compared.
const (
	brokenAck  = false
	brokenHead = true
)
