package ingest

import (
	"os"
	"testing"

	"github.com/tallylog/tally/internal/testkit"
)

// TestMain lowers the number of histories per law, because each takes many imports. -rapid.checks overrides it.
func TestMain(m *testing.M) {
	testkit.Checks(30)
	os.Exit(m.Run())
}
