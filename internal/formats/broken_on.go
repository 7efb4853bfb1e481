//go:build tally_tree_broken

package formats

import "os"

// This file is in no product. The laws are run on a build with it, to show that they would
// notice what they are for: it is broken in the way that the variable names.
func isBroken(how string) bool { return how == os.Getenv("TALLY_TEST_BROKEN") }
