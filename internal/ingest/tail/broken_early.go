//go:build tally_tail_early

package tail

// This file is in no product. The test of random histories builds with it, to show that it
// would notice: what is delivered counts as acknowledged.
const (
	brokenAck  = true
	brokenHead = false
)
