package testkit

import (
	"flag"
	"hash/fnv"
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

// Tests have three tiers. go test ./... is for everybody: it plays each law, and each
// promise on one backend. TALLY_TESTS=full is CI's: every backend, every suite, and laws
// defaultShare times as long. TALLY_SOAK=1 is for an idle machine: the long campaigns.

// defaultShare is the share of the random histories that go test ./... plays by itself.
const defaultShare = 4

// Full reports whether CI's tests are asked for, or the long campaigns.
func Full() bool { return os.Getenv("TALLY_TESTS") == "full" || Soak() }

// OnlyFull skips a test unless CI's tests are asked for. The reason names the test of
// everybody's tier that holds the same promise, or says why no cheap test can.
func OnlyFull(t testing.TB, reason string) {
	t.Helper()
	if !Full() {
		t.Skipf("TALLY_TESTS=full runs it: %s", reason)
	}
}

// Sample skips all but about one of n subtests that try the same with other inputs, unless CI's tests are
// asked for. The name of a subtest decides.
func Sample(t testing.TB, n uint32) {
	t.Helper()
	sum := fnv.New32a()
	sum.Write([]byte(t.Name()))
	if sum.Sum32()%n != 0 {
		OnlyFull(t, "other subtests try the same")
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

// Checks makes the laws that rapid draws play Times(n) times each, unless the flag
// rapid.checks or the long campaigns ask for another number. It is for a TestMain.
func Checks(n int) {
	flag.Parse()
	isSaid := Soak()
	flag.Visit(func(f *flag.Flag) { isSaid = isSaid || f.Name == "rapid.checks" })
	if !isSaid {
		flag.Set("rapid.checks", strconv.Itoa(Times(n)))
	}
}

// Times is how often a random test plays: n times in CI, a share of that in everybody's
// tier, and a fifth of either under the race detector. CI runs the tests with it and without.
func Times(n int) int {
	if !Full() {
		n /= defaultShare
	}
	if race {
		n /= raceShare
	}
	return max(n, 1)
}
