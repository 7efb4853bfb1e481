package tally

import (
	"context"
	"errors"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// patience is how long a view is waited for that another process keeps.
const patience = 5 * time.Second

// Shows returns when a view, such as "catalog", shows everything that is acknowledged
// now, and reports false if whoever keeps it takes longer than can be waited for, or is
// gone. A view that nobody keeps is ErrNotFound.
func (st *Store) Shows(ctx context.Context, view string) (bool, error) {
	at, err := st.Log.Durable(ctx)
	if err != nil {
		return false, err
	}
	waiting, stop := context.WithTimeout(ctx, patience)
	defer stop()
	err = st.Wait(waiting, view, at)
	if err != nil && waiting.Err() != nil || errors.Is(err, log.ErrUnavailable) {
		return false, ctx.Err()
	}
	return err == nil, err
}

// Sessions lists the sessions of a kind in the store's namespace, "" for all, in the
// order of their ids: from the catalog, and where there is none, or it is behind, from
// the log.
func (st *Store) Sessions(ctx context.Context, kind string) ([]projector.Listed, error) {
	if st.config.Catalog != nil {
		if shown, err := st.Shows(ctx, "catalog"); err == nil && shown {
			if list, err := st.config.Catalog(ctx, st.config.Namespace, kind); err == nil {
				return list, nil
			}
		}
	}
	var list []projector.Listed
	for info, err := range st.Subjects(ctx, events.KindSession) {
		if err != nil {
			return nil, err
		}
		s, err := st.loader.Listed(ctx, info.Subject)
		if err != nil {
			return nil, err
		}
		if s.Kind != "" && (kind == "" || s.Kind == kind) {
			list = append(list, s)
		}
	}
	return list, nil
}
