package logtest_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/logtest"
	"github.com/tallylog/tally/log"
)

func TestMain(m *testing.M) {
	testkit.Checks(100) // the default of rapid
	goleak.VerifyTestMain(m)
}

func TestMem(t *testing.T) {
	logtest.Run(t, func(t *testing.T) *log.Log { return logtest.Open(t) })
}
