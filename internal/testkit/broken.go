package testkit

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Broken builds the tests of the package with a tag, and has each law run in a build that is
// broken on purpose, in the way that is said: the law must fail. TALLY_TEST_BROKEN tells the
// build the way. A law is the name of a test, or with slashes that of a subtest; args are
// further ones of the test program.
func Broken(t *testing.T, tag string, laws map[string]string, args ...string) {
	Long(t)
	NotUnderRace(t) // which the build is not
	build := filepath.Join(t.TempDir(), "broken.test")
	if out, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-tags", tag, "-o", build, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for law, how := range laws {
		t.Run(law+" "+how, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), build, append([]string{"-test.run", "^" + strings.ReplaceAll(law, "/", "$/^") + "$"}, args...)...)
			cmd.Env = append(os.Environ(), "TALLY_TEST_BROKEN="+how)
			out, err := cmd.CombinedOutput()
			if _, failed := err.(*exec.ExitError); !failed || !strings.Contains(string(out), "--- FAIL: "+law) {
				t.Errorf("%s passes it: %v\n%.3000s", law, err, out)
			}
		})
	}
}
