//go:build !tally_tavern_blind

package tavern

import "github.com/tallylog/tally/log"

// expect is what a worker's word on its item rests on: that nobody has said anything of the
// item that it does not know.
func (c *Claim) expect(string) log.Expect {
	if c.isSerial() {
		return log.Since(c.last, runTypes...)
	}
	return log.At(c.last)
}
