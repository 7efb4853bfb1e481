package testkit

import (
	"flag"
	"os"
	"strconv"
	"testing"
	"time"
)

// raceShare is how much slower a test is under the race detector, about.
const raceShare = 5

// Needs skips a test on a machine that lacks something. CI's lacks nothing: there the
// test fails, so that nobody takes for tested what was not.
func Needs(t testing.TB, there bool, what string) {
	t.Helper()
	switch {
	case there:
	case os.Getenv("CI") != "":
		t.Fatalf("this needs %s", what)
	default:
		t.Skipf("this needs %s", what)
	}
}

// NotUnderRace skips a test under the race detector that would show nothing more there,
// and take long. CI runs the tests without, too.
func NotUnderRace(t testing.TB) {
	t.Helper()
	if race {
		t.Skip("takes long under the race detector, and shows nothing more")
	}
}

// Long skips a test that takes seconds if only a look around is asked for: go test -short.
func Long(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes long; go test without -short runs it")
	}
}

// Soak reports whether the long campaigns are asked for: make soak.
func Soak() bool { return os.Getenv("TALLY_SOAK") != "" }

// OnlySoak skips a test whose parts another one plays together, unless the long campaigns
// are asked for.
func OnlySoak(t testing.TB) {
	t.Helper()
	if !Soak() {
		t.Skip("another test plays its parts together; make soak runs it")
	}
}

// Patience is how long a test waits for what must happen: d, or what TALLY_PATIENCE says. A fault
// because of which it never happens is noticed sooner with little of it.
func Patience(d time.Duration) time.Duration {
	if said, err := time.ParseDuration(os.Getenv("TALLY_PATIENCE")); err == nil {
		return said
	}
	return d
}

// Checks has the laws that rapid draws play n times each, and a fifth of that under the race
// detector, unless somebody says how often or the long campaigns are asked for. It is for a
// TestMain.
func Checks(n int) {
	flag.Parse()
	isSaid := Soak()
	flag.Visit(func(f *flag.Flag) { isSaid = isSaid || f.Name == "rapid.checks" })
	if !isSaid {
		flag.Set("rapid.checks", strconv.Itoa(Times(n)))
	}
}

// Times is how often a random test plays: n times, and a fifth of that under the
// race detector. CI runs the tests with it and without.
func Times(n int) int {
	if race {
		return max(n/raceShare, 1)
	}
	return n
}
