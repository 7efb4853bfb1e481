package testkit

// raceShare is how much slower a test is under the race detector, about.
const raceShare = 5

// Times is how often a random test plays: n times, and a fifth of that under the
// race detector. CI runs the tests with it and without.
func Times(n int) int {
	if race {
		return max(n/raceShare, 1)
	}
	return n
}
