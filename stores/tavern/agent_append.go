//go:build !tally_tavern_apart

package tavern

import (
	"context"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/log"
)

// appendAgent appends what becomes of an agent. The commit point: before it neither subject
// says so, and behind it both do.
func appendAgent(ctx context.Context, st *tally.Store, parts []log.Part) error {
	_, err := st.AppendAll(ctx, parts...)
	return err
}
