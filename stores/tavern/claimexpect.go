package tavern

import (
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
)

// expect is what a worker's word on its item rests on: that nobody has said anything of the
// item that it does not know.
func (c *Claim) expect(typ string) log.Expect {
	if isBroken("blind") && typ == events.TypeRunFinished { // whatever came in between
		return log.Any
	}
	if c.isSerial() {
		return log.Since(c.last, runTypes...)
	}
	return log.At(c.last)
}
