package tavern

import (
	"context"

	"github.com/tallylog/tally/events"
)

// move moves the cursor, if the inbox's fields are still as they were at an offset.
func (in *Inbox) move(ctx context.Context, now inboxNow, to events.Offset) error {
	if isBroken("inbox forgets") { // the cursor is only in memory
		now.fields.Cursor = &to
		in.remember(now)
		return nil
	}
	part, err := in.seenPart(now, to)
	if err != nil {
		return err
	}
	_, err = in.st.Append(ctx, part.Subject, part.Expect, part.Events...)
	return err
}
