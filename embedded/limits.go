package embedded

import (
	"context"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/internal/quota"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// Limits are those of whoever owns the store. They stand in a file of its directory, so that
// only who can write there sets them: users of a store that listens append what they like
// and read everything, but have no part in them.

// uses has a store say what is used, in a process that counts by a meter, or in one that
// reads the limits of whoever owns it: the meter knows if it counts, the catalog if it shows
// all that is durable, as it soon does where somebody keeps it, and else the log is read.
func uses(st *tally.Config, l *log.Log, limits func() (quota.Limits, error), m *quota.Meter) {
	dir, kept := st.Host.ViewsDir, st.Host.Keep || st.Host.Shown != nil
	st.Host.Usage = func(ctx context.Context) ([]projector.Usage, error) {
		if m != nil && m.Counts() {
			return m.Usage(ctx)
		}
		now, err := limits()
		if err != nil {
			return nil, err
		}
		if list, ok := liveIn(ctx, dir, l, kept); ok {
			return quota.Total(list, now), nil
		}
		if m != nil {
			return m.Usage(ctx)
		}
		return quota.Read(ctx, l, 0, now)
	}
}

// noLimits are those of a store of which nobody here is the owner.
func noLimits() (quota.Limits, error) { return nil, nil }

// viewSoon is how long the catalog is waited for.
const viewSoon = 2 * time.Second

// liveIn returns what the catalog in a directory has, if that is all that is durable now.
func liveIn(ctx context.Context, dir string, l *log.Log, kept bool) ([]projector.Live, bool) {
	durable, err := l.Durable(ctx)
	if err != nil || dir == "" {
		return nil, false
	}
	if kept {
		waiting, stop := context.WithTimeout(ctx, viewSoon)
		_ = catalog.Wait(waiting, dir, "catalog", durable) // whether it got there, is looked at
		stop()
	}
	list, err := catalog.Open(ctx, dir)
	if err != nil {
		return nil, false
	}
	defer list.Close()
	if at, err := list.Standing(ctx); err != nil || at.Cursor.Offset < durable || len(at.Quarantined) > 0 {
		return nil, false
	}
	live, err := list.Live(ctx)
	return live, err == nil
}
