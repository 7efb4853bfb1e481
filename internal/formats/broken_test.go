package formats_test

import (
	"testing"

	"github.com/tallylog/tally/internal/testkit"
)

// The laws notice what they are for: a build that is broken on purpose fails them.
func TestBroken(t *testing.T) {
	testkit.Broken(t, "tally_tree_broken", map[string]string{
		"TestDirStorage/exchange/swap_loses_nothing": "overwrite", "TestDirSynced": "nofsync", "TestDirOdd": "follow", "TestDirAdversary": "follow",
	}, "-test.timeout=30s")
}
