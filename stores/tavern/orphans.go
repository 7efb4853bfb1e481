package tavern

import (
	"context"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/daemon"
)

// CleanOrphan does now, about what belongs to somebody who is gone, what the janitor does when
// its window is over, for whoever does not want to wait for that. It returns what was done, in
// a few words; "" if nothing was: the owner is there, somebody was faster, or somebody works
// on it right now.
func CleanOrphan(ctx context.Context, st *tally.Store, sub events.Subject) (string, error) {
	now, err := st.LogTime(ctx)
	if err != nil {
		return "", err
	}
	var res daemon.Looked
	d := &decider{st: st, name: DaemonJanitor} // without a window: what is gone is gone
	now = now.Add(time.Millisecond)            // as times are rounded up
	err = d.settle(ctx, &res, round{decide: whole((*decider).orphan)}, daemon.Due{Subject: sub}, now)
	if len(res.Made) == 0 {
		return "", err
	}
	return res.Made[0].What, err
}
