package edit

import (
	"context"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
)

// rehearsal is the log of an ingester in a dry run: memory takes what would be appended.
type rehearsal struct {
	*layouts.DryRun
	base *tally.Log
}

// Last implements ingest.Log.
func (r rehearsal) Last(ctx context.Context, sub events.Subject) (events.Record, error) {
	if rec, ok := r.DryRun.Last(sub); ok {
		return rec, nil
	}
	return r.base.Last(ctx, sub)
}

// Stamp implements ingest.Log.
func (r rehearsal) Stamp(e events.Event) events.Event { return r.base.Stamp(e) }

// Now implements ingest.Log.
func (r rehearsal) Now() time.Time { return r.base.Now() }
