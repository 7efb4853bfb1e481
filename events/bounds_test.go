package events_test

import (
	"testing"

	"github.com/tallylog/tally/events"
)

// A session may name 256 MiB again, or 15 times what it names, whichever is more.
func TestCheckAgain(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		again, distinct int64
		valid           bool
	}{
		{19 * 9 * mib, 9 * mib, true}, // one value of 9 MiB, 20 times
		{256 * mib, 1, true},
		{256*mib + 1, 1, false},
		{256*mib + 1, 17 * mib, false},
		{15 * 64 * mib, 64 * mib, true}, // one value of 64 MiB, 16 times
		{16 * 64 * mib, 64 * mib, false},
	} {
		if err := events.CheckAgain("0123456789", c.again, c.distinct); (err == nil) != c.valid {
			t.Errorf("%d bytes again of %d: got %v, want valid %v", c.again, c.distinct, err, c.valid)
		}
	}
}
