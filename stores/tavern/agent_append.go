package tavern

import (
	"context"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/log"
)

// appendAgent appends what becomes of an agent. The commit point: before it neither subject
// says so, and behind it both do.
func appendAgent(ctx context.Context, st *tally.Store, parts []log.Part) error {
	if isBroken("apart") { // one behind the other
		for _, p := range parts {
			if _, err := st.Append(ctx, p.Subject, p.Expect, p.Events...); err != nil {
				return err
			}
		}
		return nil
	}
	_, err := st.AppendAll(ctx, parts...)
	return err
}
