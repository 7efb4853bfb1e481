package logtest_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/logtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMem(t *testing.T) {
	logtest.Run(t, func(t *testing.T) *log.Log { return logtest.Open(t) })
}
