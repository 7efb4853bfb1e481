package faults_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/faults"
)

// drawFor limits the start of runs in a draw: with the last run, the draw takes about two minutes.
const drawFor = 100 * time.Second

// Each selected fault turns its tests red. TALLY_FAULTS selects: a part of their names, "all", or "draw:SEED" for as
// many as two minutes hold, in an order that depends on the seed. By default the long campaigns try all of them, and
// other runs none.
func TestFaults(t *testing.T) {
	testkit.NotUnderRace(t) // which the builds are not
	which := os.Getenv(faults.Var)
	if which == "" && !testkit.Soak() {
		t.Skip("TALLY_FAULTS=all, or a part of a fault's name, tries faults")
	}
	seed, isDraw := strings.CutPrefix(which, "draw:")
	isAll := which == "all" || which == ""
	list := slices.DeleteFunc(all(t), func(f *faults.Fault) bool { return !isDraw && !isAll && !strings.Contains(f.Name, which) })
	if len(list) == 0 {
		t.Fatalf("no fault has %q in its name", which)
	}
	if isDraw {
		random := rand.New(rand.NewChaCha8(sha256.Sum256([]byte(seed))))
		random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	}
	begun := time.Now()
	for _, f := range list {
		t.Run(f.Name, func(t *testing.T) {
			if isDraw && time.Since(begun) > drawFor {
				t.Skip("the time of the draw is over")
			}
			overlay, err := f.Overlay(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range f.Runs {
				t.Run(r.Test, func(t *testing.T) { notices(t, f, r, overlay, isAll) })
			}
		})
	}
}

// notices fails unless a test fails for a fault, and with isSound, unless it passes without.
func notices(t *testing.T, f *faults.Fault, r faults.Run, overlay string, isSound bool) {
	result, err := f.Test(t.Context(), r, overlay)
	testkit.Needs(t, !errors.Is(err, faults.ErrSkipped), "what the test needs: "+result.Said)
	if err != nil {
		t.Fatalf("%v\n%s\n%v\n%.3000s", r, f.Rule, err, result.Said)
	}
	t.Logf("%v is red after %.2f s\n%.600s", r, result.Took.Seconds(), result.Said)
	if !isSound {
		return
	}
	if result, err := f.Test(t.Context(), r, ""); !errors.Is(err, faults.ErrSurvived) {
		t.Errorf("%v is red without the fault, too: %v\n%.3000s", r, err, result.Said)
	}
}

func all(t *testing.T) []*faults.Fault {
	t.Helper()
	list, err := faults.All(testkit.Module(t))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// Each fault applies to the current code, and its tests exist.
func TestFaultsApply(t *testing.T) {
	list := all(t)
	if len(list) < 20 {
		t.Errorf("only %d faults were found", len(list))
	}
	for _, f := range list {
		if _, err := f.Apply(); err != nil {
			t.Errorf("%s: %v", f.Name, err)
		}
		for _, r := range f.Runs {
			name, _, _ := strings.Cut(r.Test, "/")
			if !hasTest(t, filepath.Join(testkit.Module(t), r.Package), name) {
				t.Errorf("%s: package %s has no test %s", f.Name, r.Package, name)
			}
		}
	}
}

// hasTest reports whether a folder's test files declare a test.
func hasTest(t *testing.T, dir, name string) bool {
	t.Helper()
	declares := regexp.MustCompile(`(?m)^func (` + name + `)\(`)
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(files, func(file string) bool {
		text, err := os.ReadFile(file)
		return err == nil && declares.Match(text)
	})
}

// toy contains the files of a module with one rule, one test that detects a violation, and tests that do not.
var toy = map[string]string{
	"go.mod": "module toy\n\ngo 1.26\n",
	"a/a.go": `package a

func Twice(n int) int {
	return 2 * n
}

func Once(n int) int {
	return n
}
`,
	"a/a_test.go": `package a

import (
	"testing"
	"time"
)

func TestTwice(t *testing.T) {
	t.Run("of two", func(t *testing.T) {
		time.Sleep(20 * time.Millisecond)
		if n := Twice(2); n != 4 {
			t.Errorf("twice two is %d", n)
		}
	})
}

func TestBlind(t *testing.T) { Twice(2) }

func TestSkipped(t *testing.T) { t.Skip("a machine that has it") }

func TestHangs(t *testing.T) { time.Sleep(time.Duration(Twice(2)-4) * time.Hour) }
`,
}

// twice returns a patch that replaces the body of Twice.
func twice(by string) string {
	return "--- a/a/a.go\n+++ b/a/a.go\n@@ -2,4 +2,4 @@\n \n func Twice(n int) int {\n-\treturn 2 * n\n+" + by + "\n }\n"
}

// Notice refuses a failure whose cause is not a test that detected the fault, and reports its kind.
func TestKit(t *testing.T) {
	testkit.Long(t)
	testkit.NotUnderRace(t) // which the builds are not
	t.Parallel()
	root := t.TempDir()
	write := func(name, text string) string {
		name = filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
		return name
	}
	for name, text := range toy {
		write(name, text)
	}
	wrong, panics := twice("\treturn 3 * n"), twice("\tpanic(n)")
	for name, c := range map[string]struct{ head, diff, want string }{
		"caught":                   {"Red: TestTwice", wrong, "ok"},
		"a subtest":                {"Red: TestTwice/of.*", wrong, "ok"},
		"in a package":             {"Red: ./a TestTwice -v", wrong, "ok"},
		"a fault that survives":    {"Red: TestBlind", wrong, "the test passes"},
		"a fault that changes":     {"Red: TestTwice", twice("\treturn 2 * n"), "it changes nothing"},
		"other code":               {"Red: TestTwice", strings.ReplaceAll(wrong, "Twice", "Thrice"), "no longer applies: a/a.go: hunk 1: its lines are not in the file"},
		"no such file":             {"Red: TestTwice", strings.ReplaceAll(wrong, "/a.go", "/b.go"), "no such file"},
		"two places":               {"Red: TestTwice", "--- a/a/a.go\n+++ b/a/a.go\n@@ -4 +4,2 @@\n }\n+// x\n", "2 times"},
		"no syntax":                {"Red: TestTwice", twice("\treturn 2 *"), "expected"},
		"no types":                 {"Red: TestTwice", twice("\treturn two"), "it does not build"},
		"a panic":                  {"Red: TestTwice", panics, "panics, which does not count"},
		"a panic that counts":      {"Red: TestTwice\nPanic: counts", panics, "ok"},
		"a test that hangs":        {"Red: TestHangs -timeout=1s", wrong, "out of time"},
		"a hang is no panic":       {"Red: TestHangs -timeout=1s\nPanic: counts", wrong, "out of time"},
		"no such test":             {"Red: TestTwi", wrong, "no such test"},
		"a flag that is not known": {"Red: TestTwice -nosuch", wrong, "no such test"},
		"a test that is skipped":   {"Red: TestSkipped", wrong, "skipped"},
		"two tests in a line":      {"Red: TestTwice TestBlind", wrong, "a line of its own"},
		"no test":                  {"", wrong, "a line Red"},
		"no diff":                  {"Red: TestTwice", "", "there is no diff"},
		"a short hunk":             {"Red: TestTwice", wrong[:len(wrong)-3], "shorter"},
		"rest":                     {"Red: TestTwice", wrong + "and more\n", "not part of a unified diff"},
	} {
		t.Run(name, func(t *testing.T) {
			file := write(fmt.Sprintf("a/testdata/faults/%s.patch", strings.ReplaceAll(name, " ", "_")), "Twice is twice.\n\n"+c.head+"\n\n"+c.diff)
			testkit.Sample(t, 3)
			t.Parallel()
			took, got := try(t, root, file)
			if !strings.Contains(got, c.want) || c.want == "ok" && took < 20*time.Millisecond {
				t.Errorf("got %s after %v, want %s", got, took, c.want)
			}
		})
	}
}

// try reads a fault, runs its test, and returns the outcome as a text.
func try(t *testing.T, root, file string) (time.Duration, string) {
	t.Helper()
	f, err := faults.Read(root, file)
	if err != nil {
		return 0, err.Error()
	}
	overlay, err := f.Overlay(t.TempDir())
	if err != nil {
		return 0, err.Error()
	}
	result, err := f.Test(t.Context(), f.Runs[0], overlay)
	if err != nil {
		return result.Took, err.Error() + "\n" + result.Said
	}
	return result.Took, "ok"
}

// A patch applies to lines that moved as a whole, in several hunks and files, to a new file and to a removed one.
func TestApply(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{"a.go": "package a\n\nvar a = 1\n\nvar b = 2\n\nvar c = 3\n", "gone.go": "package a\n"} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(root, "x.patch")
	const text = "A rule.\nRed: TestX\n\ndiff --git a/a.go b/a.go\nindex 1..2 100644\n--- a/a.go\n+++ b/a.go\n@@ -11 +11,2 @@ func x() {\n-var a = 1\n+var a = 7\n+var d = 8\n" +
		"@@ -14,2 +15,1 @@\n\n-var c = 3\n--- /dev/null\n+++ b/new.go\n@@ -0,0 +1 @@\n+package a\n--- a/gone.go\n+++ /dev/null\n@@ -1 +0,0 @@\n-package a\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := faults.Read(root, file)
	if err != nil {
		t.Fatal(err)
	}
	got, err := f.Apply()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"a.go": "package a\n\nvar a = 7\nvar d = 8\n\nvar b = 2\n\n", "new.go": "package a\n", "gone.go": ""} {
		if text, ok := got[name]; !ok || string(text) != want {
			t.Errorf("%s is %q, want %q", name, text, want)
		}
	}
	if text := got["gone.go"]; text != nil {
		t.Errorf("a removed file has the content %q", text)
	}
}
