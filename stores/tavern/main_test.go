package tavern_test

import (
	"os"
	"testing"

	"github.com/tallylog/tally/internal/testkit/storetest"
)

func TestMain(m *testing.M) {
	if text := os.Getenv(memberPlay); text != "" {
		playMember(text)
	}
	storetest.Main(m)
}
