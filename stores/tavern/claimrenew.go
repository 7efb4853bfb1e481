package tavern

import (
	"context"

	"github.com/tallylog/tally/events"
)

// renew has the log know of a longer lease.
func (c *Claim) renew(ctx context.Context, p *events.RunProgressed) error {
	if isBroken("forgetful") { // in memory only
		return nil
	}
	e, err := events.New(c.q.st.Source(), c.sub, p)
	if err != nil {
		return err
	}
	return c.append(ctx, e)
}
