package catalog

import (
	"log/slog"
	"testing"

	"go.uber.org/goleak"
)

var nullLogger = slog.New(slog.DiscardHandler)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
