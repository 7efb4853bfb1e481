package projector

import (
	"context"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/snapshot"
)

// Erase removes everything that the snapshots have of subjects, and the loader's cache, because records of the subjects
// were erased in the log. The caller names the forks of the subjects too. A load that is under way stores nothing more,
// if the store of the snapshots is a snapshot.Eraser.
func (l *Loader) Erase(ctx context.Context, subjects ...events.Subject) error {
	l.cache.clear()
	if e, ok := l.Snapshots.(snapshot.Eraser); ok {
		return e.Erase(ctx, subjects...)
	}
	if l.Snapshots == nil {
		return nil
	}
	for m, err := range l.Snapshots.All(ctx) {
		if err == nil && slices.Contains(subjects, m.Subject) {
			err = l.Snapshots.Delete(ctx, m)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// since returns the snapshots for a load that begins now.
func (l *Loader) since() snapshot.Store {
	if e, ok := l.Snapshots.(snapshot.Eraser); ok {
		return e.Since()
	}
	return l.Snapshots
}
