package testkit

import (
	"flag"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"strconv"
	"sync"
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

// CI has no time for all of the full tier. It sets TALLY_DRAW to the hash of the commit, and plays one of drawShare parts
// of what OnlyFull and IsSampled leave out of the default tier: successive commits play different parts. Without
// TALLY_DRAW, and in the long campaigns, all parts are played.
var drawShare uint32 = 3

// Draw sets the number of parts for a package whose full tier takes longer than others. Call it in TestMain.
func Draw(share uint32) { drawShare = share }

// IsWhole reports whether all parts of the full tier are played.
func IsWhole() bool { return Full() && (os.Getenv("TALLY_DRAW") == "" || Soak()) }

// isFull reports whether a test beyond the default tier is played.
func isFull(name string) bool {
	return IsWhole() || Full() && hash(os.Getenv("TALLY_DRAW")+name)%drawShare == 0
}

func hash(s string) uint32 {
	sum := fnv.New32a()
	sum.Write([]byte(s))
	return sum.Sum32()
}

// OnlyFull skips a test unless the full tier is requested, see also Draw. The reason names the test of the default tier
// that covers the same promise, or explains why no cheap test can.
func OnlyFull(t testing.TB, reason string) {
	t.Helper()
	if !isFull(t.Name()) {
		t.Skipf("TALLY_TESTS=full runs it: %s", reason)
	}
}

// Sample skips all but about one of n similar subtests, unless the full tier is requested. The hash of a subtest's name
// decides.
func Sample(t testing.TB, n uint32) {
	t.Helper()
	if !IsSampled(t.Name(), n) {
		OnlyFull(t, "other subtests try the same")
	}
}

// IsSampled reports whether a test plays one of n similar parts with such names. In the full tier it plays each one, see
// also Draw.
func IsSampled(name string, n uint32) bool { return isFull(name) || hash(name)%n == 0 }

// Plays reports whether a test plays the i-th of similar steps: each one in the full tier, one of n in the default tier.
func Plays(i, n int) bool { return Full() || i%n == 0 }

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

// CollectLess makes garbage collections a quarter as frequent, which saves a quarter of the CPU time of tests that
// allocate much and keep little. Benchmarks keep the program's setting, and GOGC decides if it is set. Call it in TestMain.
func CollectLess() {
	if collectsLess() {
		debug.SetGCPercent(400)
	}
}

// ProgramsCollectLess does the same to programs that tests start, but for the long campaigns. A program whose memory is
// measured needs an empty GOGC.
func ProgramsCollectLess() {
	if collectsLess() && !Soak() {
		os.Setenv("GOGC", "400")
	}
}

func collectsLess() bool {
	flag.Parse()
	bench := flag.Lookup("test.bench")
	return os.Getenv("GOGC") == "" && (bench == nil || bench.Value.String() == "")
}

// Checks makes rapid play each law Times(n) times, unless the flag rapid.checks or the long campaigns set another
// number. It calls CollectLess. Call it in TestMain.
func Checks(n int) {
	CollectLess()
	isSaid := Soak()
	flag.Visit(func(f *flag.Flag) { isSaid = isSaid || f.Name == "rapid.checks" })
	if !isSaid {
		flag.Set("rapid.checks", strconv.Itoa(Times(n)))
	}
}

// Seed returns a seed for random inputs of a test, which fails with a note of the seed. The value of TALLY_SEED
// overrides it. CI derives TALLY_SEED and the seed of rapid from the commit's hash.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed, err := strconv.ParseUint(os.Getenv("TALLY_SEED"), 10, 64)
	if err != nil {
		seed = rand.Uint64()
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("TALLY_SEED=%d", seed)
		}
	})
	return seed
}

// randoms has the random numbers of running tests.
var randoms sync.Map // testing.TB to *rand.Rand

// Random returns random numbers that begin with Seed, one sequence for each test. Goroutines may share them.
func Random(t testing.TB) *rand.Rand {
	t.Helper()
	if r, ok := randoms.Load(t); ok {
		return r.(*rand.Rand)
	}
	r, isOld := randoms.LoadOrStore(t, rand.New(&shared{source: rand.NewPCG(Seed(t), 0)}))
	if !isOld {
		t.Cleanup(func() { randoms.Delete(t) })
	}
	return r.(*rand.Rand)
}

// shared is a source for goroutines.
type shared struct {
	mu     sync.Mutex
	source rand.Source
}

func (s *shared) Uint64() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.source.Uint64()
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
