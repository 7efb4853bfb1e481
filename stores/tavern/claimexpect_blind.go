//go:build tally_tavern_blind

package tavern

import (
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
)

// This file is in no product. The law of queues builds with it, to show that it would
// notice: a worker finishes its item whatever came in between.
func (c *Claim) expect(typ string) log.Expect {
	switch {
	case typ == events.TypeRunFinished:
		return log.Any
	case c.isSerial():
		return log.Since(c.last, runTypes...)
	}
	return log.At(c.last)
}
