package runner

import (
	"context"
	"fmt"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/daemon"
)

// RetainDaemon is the name of the daemon that Retain returns.
const RetainDaemon = "retain"

// retainEvery is the time between two looks of the daemon, by the log's time.
const retainEvery = 24 * time.Hour

// retain forgets the sessions that are older than rules say.
type retain struct {
	st    *tally.Store
	rules []tally.Retention
}

// Retain returns the daemon that forgets, once a day, the sessions that are older than rules say.
func Retain(st *tally.Store, rules []tally.Retention) daemon.Daemon { return &retain{st, rules} }

// Name implements daemon.Daemon.
func (r *retain) Name() string { return RetainDaemon }

// Decide implements daemon.Daemon.
func (r *retain) Decide(ctx context.Context, _ daemon.Work, now time.Time) (daemon.Result, error) {
	res := daemon.Result{Next: now.Add(retainEvery)}
	due, err := r.st.Due(ctx, r.rules)
	if err != nil {
		return res, err
	}
	for _, what := range due {
		receipt, err := r.st.Forget(ctx, what)
		switch {
		case ctx.Err() != nil:
			return res, context.Cause(ctx)
		case err != nil:
			res.Failed, res.Err = res.Failed+1, err
		case receipt.ID != "":
			res.Made = append(res.Made, daemon.Decision{Subject: events.Document(what.Namespace, "receipt", receipt.ID), What: fmt.Sprintf("forgot %d records", receipt.Records)})
		}
	}
	return res, nil
}
