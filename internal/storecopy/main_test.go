package storecopy_test

import (
	"os"
	"testing"

	"github.com/tallylog/tally/internal/testkit"
)

// TestMain lowers the number of pairs of stores that are merged. -rapid.checks overrides it.
func TestMain(m *testing.M) {
	testkit.Checks(60)
	os.Exit(m.Run())
}
