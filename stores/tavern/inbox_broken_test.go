package tavern_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/tallylog/tally/internal/testkit"
)

// The laws notice what they are for: builds that are broken on purpose fail them, each in its way.
func TestInboxBrokenBuilds(t *testing.T) {
	testkit.Long(t)
	testkit.NotUnderRace(t) // which the builds are not
	// One build is broken in both ways: no law sees what the other one is for.
	out, err := exec.CommandContext(t.Context(), "go", "test", "-tags", "tally_inbox_forgets,tally_inbox_random", "-run", "^(TestInboxCursorLaw|TestInboxOnceLaw)$", ".").CombinedOutput()
	for law, tag := range map[string]string{"TestInboxCursorLaw": "tally_inbox_forgets", "TestInboxOnceLaw": "tally_inbox_random"} {
		if _, failed := err.(*exec.ExitError); !failed || !strings.Contains(string(out), "--- FAIL: "+law+" ") {
			t.Errorf("%s passes a build with %s: %v\n%s", law, tag, err, out)
		}
	}
}
