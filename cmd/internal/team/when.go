package team

import (
	"context"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
)

// timeFrom reads a time to come by which the log judges: from now on by the clock that dates
// records. In a store that rested, the log's time is that of its last record.
func timeFrom(ctx context.Context, s *store, flag, text string) (at time.Time, err error) {
	if text == "" {
		return at, nil
	}
	err = s.do(ctx, func(st *tally.Store) error {
		now, err := st.LeaseTime(ctx)
		if err != nil {
			return err
		}
		at, err = cmdutil.Until(flag, text, now)
		return err
	})
	return at, err
}
