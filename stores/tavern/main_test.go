package tavern_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/tallylog/tally/internal/testkit/storetest"
)

func TestMain(m *testing.M) {
	if text := os.Getenv(memberPlay); text != "" {
		playMember(text)
	}
	storetest.Main(leakless{m})
}

// leakless runs tests and checks that they leave no goroutines.
type leakless struct{ *testing.M }

func (m leakless) Run() int {
	code := m.M.Run()
	if code != 0 {
		return code
	}
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
