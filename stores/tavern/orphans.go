package tavern

import (
	"context"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/daemon"
)

// CleanOrphan does at once what the janitor would do after its window about a subject whose owner is gone. It returns
// what it did, in a few words. It returns "" if the owner exists, if another process was faster, or if a worker holds
// the subject.
func CleanOrphan(ctx context.Context, st *tally.Store, sub events.Subject) (string, error) {
	now, err := st.LogTime(ctx)
	if err != nil {
		return "", err
	}
	var res daemon.Result
	d := &decider{st: st, name: DaemonJanitor} // without a window: any owner that is gone counts
	now = now.Add(time.Millisecond)            // because times are rounded up
	err = d.settle(ctx, &res, round{decide: whole((*decider).orphan)}, daemon.Due{Subject: sub}, now)
	if len(res.Made) == 0 {
		return "", err
	}
	return res.Made[0].What, err
}
