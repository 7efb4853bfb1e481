//go:build tally_inbox_forgets

package tavern

import (
	"context"

	"github.com/tallylog/tally/events"
)

// This file is in no product. The laws of the cursor build with it, to show that they would
// notice: the cursor is only in memory.
func (in *Inbox) move(_ context.Context, now inboxNow, to events.Offset) error {
	now.fields.Cursor = &to
	in.remember(now)
	return nil
}
