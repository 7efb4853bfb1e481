package ingest

import (
	"os"
	"testing"

	"github.com/tallylog/tally/internal/testkit"
)

// TestMain has the laws play fewer histories than rapid does by itself, as each is many
// imports, unless somebody says how many.
func TestMain(m *testing.M) {
	testkit.Checks(30)
	os.Exit(m.Run())
}
