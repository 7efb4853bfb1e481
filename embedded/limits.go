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

// The limits of a store are in a file of its directory, so only processes that can write there set them. Remote users
// of a listening owner cannot.

// uses makes a store report its usage. The figures come from the meter if this process counts with one; from the
// catalog if it includes all durable records; and otherwise from the log.
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

// noLimits returns no limits, for a store whose owner is not on this machine.
func noLimits() (quota.Limits, error) { return nil, nil }

// viewSoon bounds the wait for the catalog.
const viewSoon = 2 * time.Second

// liveIn returns the usage from the catalog in a directory, if the catalog includes all durable records.
func liveIn(ctx context.Context, dir string, l *log.Log, kept bool) ([]projector.Live, bool) {
	durable, err := l.Durable(ctx)
	if err != nil || dir == "" {
		return nil, false
	}
	if kept {
		waiting, stop := context.WithTimeout(ctx, viewSoon)
		_ = catalog.Wait(waiting, dir, "catalog", durable) // Standing below shows whether the catalog caught up
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
