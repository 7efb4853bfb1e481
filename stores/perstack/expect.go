//go:build !tally_perstack_blind

package perstack

import (
	"context"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// decideAndAppend appends what is decided on the condition that it still rests on what is
// there, and decides anew if it does not.
func (h *Handle) decideAndAppend(ctx context.Context, decide func(*projector.Outline) ([]events.Payload, error)) (log.Ack, error) {
	return h.session.Update(ctx, decides, decide)
}
