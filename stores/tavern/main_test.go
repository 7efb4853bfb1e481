package tavern_test

import (
	"testing"

	"github.com/tallylog/tally/internal/storetest"
)

func TestMain(m *testing.M) { storetest.Main(m) }
