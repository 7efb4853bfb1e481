package tend_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/tallylog/tally/internal/testkit"
)

// The test of clocks notices what it is for: daemons that decide by the clock fail it.
func TestBrokenBuild(t *testing.T) {
	testkit.Long(t)
	testkit.NotUnderRace(t) // which the build is not
	out, err := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-tags", "tally_tend_clock", "-run", "^TestLoopClock$", ".").CombinedOutput()
	if _, failed := err.(*exec.ExitError); !failed || !strings.Contains(string(out), "--- FAIL: TestLoopClock") {
		t.Errorf("a build that decides by the clock passes: %v\n%s", err, out)
	}
}
