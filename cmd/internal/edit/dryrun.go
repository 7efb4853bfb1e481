package edit

import (
	"context"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
)

// dryRunLog is the log of an ingester in a dry run. Appends go to memory.
type dryRunLog struct {
	*layouts.DryRun
	base *tally.Log
}

// Last implements ingest.Log.
func (r dryRunLog) Last(ctx context.Context, sub events.Subject) (events.Record, error) {
	if rec, ok := r.DryRun.Last(sub); ok {
		return rec, nil
	}
	return r.base.Last(ctx, sub)
}

// Stamp implements ingest.Log.
func (r dryRunLog) Stamp(e events.Event) events.Event { return r.base.Stamp(e) }

// Now implements ingest.Log.
func (r dryRunLog) Now() time.Time { return r.base.Now() }
