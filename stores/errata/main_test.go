package errata_test

import (
	"testing"

	"github.com/tallylog/tally/internal/testkit/storetest"
)

func TestMain(m *testing.M) { storetest.Main(m) }
