package tally

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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

// QueueView returns a queue as the view "work" has it, without what is done, and the offset up
// to which that is so, which may be behind the log. Whoever goes on from there reads what is to
// be done, and not all that ever was. Of the items that are free it has the first ones, so many
// at least, or all if most is 0. A view that nobody keeps is ErrNotFound.
func (st *Store) QueueView(ctx context.Context, id string, most int) (*projector.Work, events.Offset, error) {
	if st.config.Host.Queue == nil {
		return nil, 0, fmt.Errorf("view work: %w", ErrNotFound)
	}
	return st.config.Host.Queue(ctx, st.config.Namespace, id, most)
}

// Sessions lists the sessions of a kind in the store's namespace, "" for all, in the
// order of their ids, as SessionList does.
func (st *Store) Sessions(ctx context.Context, kind string) ([]projector.Listed, error) {
	return st.SessionList(ctx, projector.SessionQuery{Kind: kind})
}

// SessionList lists the sessions that a query selects: from the catalog, and where there is
// none, or it is behind, from the log, which folds each. Everything that is acknowledged
// when it is called is in it.
func (st *Store) SessionList(ctx context.Context, q projector.SessionQuery) ([]projector.Listed, error) {
	q.Namespace = cmp.Or(q.Namespace, st.config.Namespace)
	if st.config.Host.Catalog != nil {
		if shown, err := st.Shows(ctx, "catalog"); err == nil && shown {
			if list, err := st.config.Host.Catalog(ctx, q); err == nil {
				return list, nil
			}
		}
	}
	var list []projector.Listed
	for info, err := range st.Log.Subjects(ctx, q.Namespace, events.KindSession) {
		if err != nil {
			return nil, err
		}
		s, err := st.loader.Listed(ctx, info.Subject)
		if err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	return q.Page(list), nil
}

// ErrNoCatalog says that there is no catalog that could be asked, or that it is behind.
var ErrNoCatalog = errors.New("there is no catalog that shows everything")

// Progress lists what happened in runs of a session, in the order of the log, from the
// catalog. Everything that is acknowledged when it is called is in it. Without a catalog it is
// ErrNoCatalog: who needs it reads the session, and projector.ProgressOf says what happened.
func (st *Store) Progress(ctx context.Context, q projector.ProgressQuery) ([]projector.Progress, error) {
	q.Namespace = cmp.Or(q.Namespace, st.config.Namespace)
	if st.config.Host.Progress == nil {
		return nil, ErrNoCatalog
	}
	shown, err := st.Shows(ctx, "catalog")
	if err == nil && shown {
		var list []projector.Progress
		if list, err = st.config.Host.Progress(ctx, q); err == nil {
			return list, nil
		}
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return nil, fmt.Errorf("%w: %w", ErrNoCatalog, cmp.Or(err, context.DeadlineExceeded))
}
