//go:build tally_bounds_broken

package events

import "os"

// This file is in no product. The laws of bounds run on a build with it, to show that they
// notice a missing bound: TALLY_TEST_BROKEN names the bound that this build lacks.
func isBroken(bound string) bool { return bound == os.Getenv("TALLY_TEST_BROKEN") }
