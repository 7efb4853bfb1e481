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

// Decision is what is due of a message, an item, an agent, a flow or a document: append Parts now, all or none,
// and look again at Next. It follows from the log and its time alone, and rests on what was
// read: so however many decide, each thing is done once. See Make.
type Decision struct {
	Parts []log.Part // empty: nothing is due
	Why   string     // in a few words, such as lost; "": nothing is due
	Next  time.Time  // by the log's time; zero: nothing will be due by time alone
}

// Make appends what was decided. It returns false if there was nothing, or the decision is
// void: what it rested on is no more, or somebody made it before. Then nothing was written. With
// a *tally.TreeError it returns the same: the decision is stored, and files do not show it.
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

// maxDecisions bounds how often a change is decided anew because somebody else wrote
// meanwhile.
const maxDecisions = 31

// pause waits before a change is decided anew, each time a little longer.
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
