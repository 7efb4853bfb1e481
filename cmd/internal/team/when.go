package team

import (
	"context"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/app"
)

// until reads a time to come by which the log judges: from now on by this machine's clock,
// or by the log's time if that is later. In a store that rested, the log's time alone is
// that of its last record.
func until(ctx context.Context, st *tally.Store, flag, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	now, err := st.LogTime(ctx)
	if err != nil {
		return now, err
	}
	if clock := st.Now(); clock.After(now) {
		now = clock
	}
	return app.Until(flag, text, now)
}
