package testkit

import (
	"flag"
	"hash/fnv"
	"os"
	"strconv"
	"testing"
	"time"
)

// raceShare is about how much slower a test is under the race detector.
const raceShare = 5

// Needs skips a test on a machine that lacks something. In CI the test fails instead, so that a skipped test never
// looks tested.
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

// NotUnderRace skips a test under the race detector that would show nothing more there, and take long. CI also runs the
// tests without it.
func NotUnderRace(t testing.TB) {
	t.Helper()
	if race {
		t.Skip("shows nothing more under the race detector, and takes long there")
	}
}

// Long skips a test that takes seconds under go test -short.
func Long(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes long; go test without -short runs it")
	}
}

// Tests have three tiers. The default tier, go test ./..., plays each law, and each promise on one backend. The full
// tier, TALLY_TESTS=full, has every backend and every suite, and plays laws defaultShare times as long; CI runs it.
// TALLY_SOAK=1 adds the long campaigns, for an idle machine.

// defaultShare divides the number of random histories in the default tier.
const defaultShare = 4

// Full reports whether the full tier or the long campaigns are requested.
func Full() bool { return os.Getenv("TALLY_TESTS") == "full" || Soak() }

// OnlyFull skips a test unless the full tier is requested. The reason names the test of the default tier that covers
// the same promise, or explains why no cheap test can.
func OnlyFull(t testing.TB, reason string) {
	t.Helper()
	if !Full() {
		t.Skipf("TALLY_TESTS=full runs it: %s", reason)
	}
}

// Sample skips all but about one of n similar subtests, unless the full tier is requested. The hash of a subtest's name
// decides.
func Sample(t testing.TB, n uint32) {
	t.Helper()
	sum := fnv.New32a()
	sum.Write([]byte(t.Name()))
	if sum.Sum32()%n != 0 {
		OnlyFull(t, "other subtests try the same")
	}
}

// Soak reports whether the long campaigns are requested: make soak.
func Soak() bool { return os.Getenv("TALLY_SOAK") != "" }

// OnlySoak skips a test whose parts another test plays together, unless the long campaigns are requested.
func OnlySoak(t testing.TB) {
	t.Helper()
	if !Soak() {
		t.Skip("another test plays its parts together; make soak runs it")
	}
}

// Patience returns how long a test waits for something that must happen: d, or the value of TALLY_PATIENCE. A short
// value lets a fault because of which it never happens fail sooner.
func Patience(d time.Duration) time.Duration {
	if said, err := time.ParseDuration(os.Getenv("TALLY_PATIENCE")); err == nil {
		return said
	}
	return d
}

// Checks makes rapid play each law Times(n) times, unless the flag rapid.checks or the long campaigns set another
// number. Call it in TestMain.
func Checks(n int) {
	flag.Parse()
	isSaid := Soak()
	flag.Visit(func(f *flag.Flag) { isSaid = isSaid || f.Name == "rapid.checks" })
	if !isSaid {
		flag.Set("rapid.checks", strconv.Itoa(Times(n)))
	}
}

// Times returns how often a random test plays: n times in CI, a share of that in the default tier, and a fifth of
// either under the race detector. CI runs the tests with and without it.
func Times(n int) int {
	if !Full() {
		n /= defaultShare
	}
	if race {
		n /= raceShare
	}
	return max(n, 1)
}
