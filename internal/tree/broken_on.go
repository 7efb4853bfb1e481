//go:build tally_tree_broken

package tree

import "os"

// A build with this tag is wrong in the way that TALLY_TEST_BROKEN names: the laws must find
// out.
var (
	trustsTime = os.Getenv("TALLY_TEST_BROKEN") == "trustmtime" // a file of the same size is taken for the same
	forgets    = os.Getenv("TALLY_TEST_BROKEN") == "forget"     // what is overwritten while the tree asks is in no log
	echoes     = os.Getenv("TALLY_TEST_BROKEN") == "echo"       // what the tree wrote itself is taken for somebody's edit
)
