package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Var is the environment variable that selects faults.
const Var = "TALLY_FAULTS"

// Errors of Test for a test that does not fail.
var (
	ErrSurvived = errors.New("the test passes")
	ErrSkipped  = errors.New("the test is skipped")
)

// A Result describes how a test failed.
type Result struct {
	Took time.Duration // the test's own running time
	Said string        // output of the test, or why it did not notice
}

// Test runs a test with an overlay, "" for none, and returns how it failed. A failed build is an error, and so is a
// panic unless it counts: in neither case did the test notice.
func (f *Fault) Test(ctx context.Context, r Run, overlay string) (Result, error) {
	args := slices.Concat([]string{"test", "-json", "-vet=off", "-count=1", "-ldflags=-w", "-timeout=2m", "-run", pattern(r.Test), r.Package}, f.rapid(r), r.Args)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = f.root, environment(r, overlay)
	var warnings bytes.Buffer
	cmd.Stderr = &warnings
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		return Result{}, err
	}
	var got outcome
	test := regexp.MustCompile("^((" + strings.ReplaceAll(r.Test, "/", ")/(") + "))(/.*)?$")
	for line := range bytes.Lines(out) {
		got.read(line, test)
	}
	return got.judge(f.Panics, warnings.String())
}

// pattern returns the -run pattern for exactly the named test.
func pattern(test string) string {
	return "^(" + strings.ReplaceAll(test, "/", ")$/^(") + ")$"
}

// environment puts the overlay into the environment, so that programs that the test builds have the fault too. It
// unsets CI, under which a test fails if the machine lacks something, and the long campaigns, which continue after a
// law was broken. What never happens because of a fault is given up soon, see testkit.Patience.
func environment(r Run, overlay string) []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "CI=") || strings.HasPrefix(v, "TALLY_SOAK=") || strings.HasPrefix(v, Var+"=")
	})
	if overlay != "" {
		env = append(env, "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -overlay="+overlay))
	}
	return slices.Concat(env, []string{"TALLY_TESTS=full", "TALLY_PATIENCE=8s"}, r.Env) // as many random histories as CI plays
}

// rapid returns the flags that keep rapid from shrinking and saving failures, if the package's tests use it.
func (f *Fault) rapid(r Run) []string {
	files, _ := filepath.Glob(filepath.Join(f.root, filepath.FromSlash(r.Package), "*_test.go"))
	if slices.ContainsFunc(files, func(name string) bool {
		text, err := os.ReadFile(name)
		return err == nil && bytes.Contains(text, []byte(`"pgregory.net/rapid"`))
	}) {
		return []string{"-rapid.nofailfile", "-rapid.shrinktime=0s"}
	}
	return nil
}

// An outcome is the parsed output of go test -json.
type outcome struct {
	took                    time.Duration
	failed, passed, skipped bool   // the selected test
	said, all               string // output of it and its subtests, and of all tests
	broken                  bool   // the build
	panicked, timedOut      bool
}

func (o *outcome) read(line []byte, test *regexp.Regexp) {
	var e struct {
		Action, Test, Output, FailedBuild string
		Elapsed                           float64
	}
	if json.Unmarshal(line, &e) != nil {
		o.all += string(line)
		return
	}
	o.all += e.Output
	o.broken = o.broken || e.Action == "build-fail" || e.FailedBuild != ""
	o.panicked = o.panicked || strings.HasPrefix(e.Output, "panic: ") || strings.HasPrefix(e.Output, "fatal error: ")
	o.timedOut = o.timedOut || strings.HasPrefix(e.Output, "panic: test timed out")
	if e.Action == "output" && e.Test != "" && !strings.HasPrefix(strings.TrimSpace(e.Output), "=== ") {
		o.said += e.Output
	}
	match := test.FindStringSubmatch(e.Test)
	if match == nil {
		return
	}
	o.took = max(o.took, time.Duration(e.Elapsed*float64(time.Second))) // the time of parallel subtests is not part of their test's time
	if match[1] == e.Test {
		o.failed, o.passed, o.skipped = o.failed || e.Action == "fail", o.passed || e.Action == "pass", o.skipped || e.Action == "skip"
	}
}

// judge returns how the test failed, or why it does not count.
func (o *outcome) judge(panics bool, warnings string) (Result, error) {
	switch r := (Result{o.took, o.said}); {
	case o.broken:
		return Result{Said: o.all + warnings}, errors.New("it does not build")
	case o.timedOut:
		return Result{o.took, o.all}, errors.New("the test ran out of time")
	case o.panicked && !panics:
		return Result{o.took, o.all}, errors.New("the test panics, which does not count")
	case o.failed || o.panicked:
		return r, nil
	case o.passed:
		return r, ErrSurvived
	case o.skipped:
		return r, ErrSkipped
	}
	return Result{Said: o.all + warnings}, errors.New("no such test was run")
}
