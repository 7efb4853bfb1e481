package catalog

import (
	"log/slog"
	"testing"

	"go.uber.org/goleak"

	"github.com/tallylog/tally/internal/testkit"
)

var nullLogger = slog.New(slog.DiscardHandler)

func TestMain(m *testing.M) {
	testkit.Checks(100) // the default of rapid
	goleak.VerifyTestMain(m)
}
