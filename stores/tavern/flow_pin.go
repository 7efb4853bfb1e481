package tavern

import (
	"context"

	"github.com/tallylog/tally/events"
)

// readPinned returns the revision that a flow was started with.
func (w *Workflows) readPinned(ctx context.Context, id string, at events.Offset) (*Workflow, error) {
	if isBroken("flow newest") { // the template as it is now
		return w.Read(ctx, id)
	}
	return w.ReadAt(ctx, id, at)
}
