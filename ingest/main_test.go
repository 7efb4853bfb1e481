package ingest

import (
	"flag"
	"os"
	"strconv"
	"testing"

	"github.com/tallylog/tally/internal/testkit"
)

// TestMain has the laws play fewer histories than rapid does by itself, as each is many
// imports, unless somebody says how many.
func TestMain(m *testing.M) {
	flag.Parse()
	isSaid := false
	flag.Visit(func(f *flag.Flag) { isSaid = isSaid || f.Name == "rapid.checks" })
	if !isSaid {
		flag.Set("rapid.checks", strconv.Itoa(testkit.Times(30)))
	}
	os.Exit(m.Run())
}
