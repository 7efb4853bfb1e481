//go:build tally_perstack_blind

package perstack

import (
	"context"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// This file is in no product. The test of parallel delegates builds with it, to show that it
// would notice: what is decided is appended whatever came in between.
func (h *Handle) decideAndAppend(ctx context.Context, decide func(*projector.Outline) ([]events.Payload, error)) (log.Ack, error) {
	now, err := h.st.Loader().Peek(ctx, h.session.Subject())
	if err != nil {
		return log.Ack{}, err
	}
	payloads, err := decide(now)
	if err != nil || len(payloads) == 0 {
		return log.Ack{}, err
	}
	return h.session.Append(ctx, log.Since(events.MaxOffset, decides...), payloads...)
}
