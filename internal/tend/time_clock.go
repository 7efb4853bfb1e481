//go:build tally_tend_clock

package tend

import "time"

// This file is in no product. The test of clocks that are wrong builds with it, to show that
// it would notice: daemons decide by the clock of the machine.
func lookTime(time.Time) time.Time { return time.Now() }
