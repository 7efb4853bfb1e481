package tavern

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
)

// Decision is what is due for a message, an item, an agent, a flow or a document: append Parts now, all or none, and
// look again at Next. It follows from the log and the log's time alone. If its basis has changed, it has no effect. So
// each thing is done once, however many processes decide. See Make.
type Decision struct {
	Parts []log.Part // empty: nothing is due
	Why   string     // a few words, such as lost; "": nothing is due
	Next  time.Time  // by the log's time; zero: time alone makes nothing due
}

// Make appends the decision. It returns false if nothing was due, if the basis has changed, or if another process made
// the decision before; then nothing was written. With a *events.TreeError it returns the same values: the decision is
// stored, but files do not show it.
func (d Decision) Make(ctx context.Context, st *tally.Store) (bool, error) {
	if len(d.Parts) == 0 {
		return false, nil
	}
	acks, err := st.AppendAll(ctx, d.Parts...)
	wrong, invalid := errors.AsType[*events.InvalidError](err)
	switch {
	case events.IsStored(err):
		return !slices.ContainsFunc(acks, func(a log.Ack) bool { return a.Duplicate }), err
	case errors.Is(err, log.ErrConflict), invalid && wrong.Field == "id":
		return false, nil
	}
	return false, err
}

// maxDecisions bounds how often a change is decided again after faster writes.
const maxDecisions = 31

// pause waits before another decision, longer after each try.
func pause(ctx context.Context, try int) error {
	t := time.NewTimer(time.Millisecond << min(try-1, 6))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
