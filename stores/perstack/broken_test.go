package perstack_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/tallylog/tally/internal/testkit"
)

// The laws notice what they are for: builds that are broken on purpose fail them, each way in.
func TestBrokenBuilds(t *testing.T) {
	testkit.Long(t)
	testkit.NotUnderRace(t) // which the builds are not
	// One build is broken in both ways: no law sees what another one is for.
	out, err := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-tags", "tally_perstack_blind,tally_perstack_whole", "-run", "^(TestDelegates|TestSize|TestImportSize)$/^memory$",
		".", "./perstackdir").CombinedOutput()
	for law, tag := range map[string]string{"TestDelegates": "tally_perstack_blind", "TestSize": "tally_perstack_whole", "TestImportSize": "tally_perstack_whole"} {
		if _, failed := err.(*exec.ExitError); !failed || !strings.Contains(string(out), "--- FAIL: "+law+" ") {
			t.Errorf("%s passes a build with %s: %v\n%s", law, tag, err, out)
		}
	}
}
