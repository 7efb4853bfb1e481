package tree

import (
	"testing"

	"github.com/tallylog/tally/internal/testkit"
)

// The laws notice what they are for: a build that is broken on purpose fails them. That files are
// synced, tests of the power show.
func TestBroken(t *testing.T) {
	testkit.Broken(t, "tally_tree_broken", map[string]string{
		"TestNoEcho": "echo", "TestLaws": "trustmtime", "TestLawsAsked": "forget", "TestBothSides": "overwrite", "TestLinks": "follow",
	}, "-test.timeout=60s")
}
