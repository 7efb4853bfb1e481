package tree

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallylog/tally/internal/testkit"
)

// The laws notice what they are for: a build that is broken on purpose fails them. That files are
// synced, tests of the power show.
func TestBroken(t *testing.T) {
	testkit.Long(t)
	testkit.NotUnderRace(t) // which the build is not
	build := filepath.Join(t.TempDir(), "broken.test")
	if out, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-tags", "tally_tree_broken", "-o", build, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for how, law := range map[string]string{"echo": "TestNoEcho", "trustmtime": "TestLaws", "overwrite": "TestBothSides", "follow": "TestLinks"} {
		t.Run(law+" "+how, func(t *testing.T) {
			t.Parallel()
			var out []byte
			var err error
			for range 5 { // a busy machine may have what is wrong not show
				cmd := exec.CommandContext(t.Context(), build, "-test.run", "^"+law+"$", "-test.timeout", "60s")
				cmd.Env = append(os.Environ(), "TALLY_TEST_BROKEN="+how)
				out, err = cmd.CombinedOutput()
				if _, failed := err.(*exec.ExitError); failed && strings.Contains(string(out), "--- FAIL: "+law) {
					return
				}
			}
			t.Errorf("%s passes it: %v\n%.3000s", law, err, out)
		})
	}
}
