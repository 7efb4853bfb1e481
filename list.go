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

// patience is how long to wait for a view that another process keeps.
const patience = 5 * time.Second

// Shows waits until a view, such as "catalog", shows everything that is acknowledged now. It returns false if the
// process that keeps the view has ended or takes too long. If nobody keeps the view, the error is ErrNotFound.
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

// Lacks returns a *projector.HoleError of the lost records that a view, such as "catalog", does not show: of a
// namespace, "" for all, and of subjects that about selects, nil for all. Lost records of unknown subject count.
// Without views the error has all lost records that the log knows of. nil: the view shows everything.
func (st *Store) Lacks(ctx context.Context, view, namespace string, about func(events.Subject) bool) error {
	lost := st.Log.Unreadable()
	if st.config.Host.Lacks != nil {
		var err error
		if lost, err = st.config.Host.Lacks(ctx, view, lost); err != nil {
			return err
		}
	}
	var at []events.Offset
	for _, h := range lost {
		sub, err := events.ParseNATS(h.Subject)
		if err != nil || (namespace == "" || sub.Namespace == namespace) && (about == nil || about(sub)) {
			at = append(at, h.Offset)
			_ = log.Noted(ctx, &events.DamageError{Offset: h.Offset}) // h is returned below
		}
	}
	return projector.HoleOf(events.Subject{Namespace: namespace, Kind: projector.KindView, ID: view}, at)
}

// QueueView returns a queue from the view "work", without finished items, and the offset up to which the view has read,
// which may be behind the log. A caller that continues from there reads the open work, and not the whole history. It
// has at least limit of the free items, the first ones, or all if limit is 0. If nobody keeps the view, the error is
// ErrNotFound.
func (st *Store) QueueView(ctx context.Context, id string, limit int) (*projector.Work, events.Offset, error) {
	if st.config.Host.Queue == nil {
		return nil, 0, fmt.Errorf("view work: %w", ErrNotFound)
	}
	return st.config.Host.Queue(ctx, st.config.Namespace, id, limit)
}

// Sessions lists the sessions of a kind in the store's namespace, "" for all kinds, in the order of their ids, like
// SessionList. Sessions of items are not listed: a queue lists its items.
func (st *Store) Sessions(ctx context.Context, kind string) ([]projector.Listed, error) {
	return st.SessionList(ctx, projector.SessionQuery{Kind: kind})
}

// SessionList lists the sessions that a query selects, from the catalog. If there is no catalog, or it is behind, it
// folds each session from the log. Sessions of items are not listed. The list includes every append that was
// acknowledged before the call. If a record of a session is lost that the list does not show, it comes with a
// *projector.HoleError.
func (st *Store) SessionList(ctx context.Context, q projector.SessionQuery) ([]projector.Listed, error) {
	q.Namespace = cmp.Or(q.Namespace, st.config.Namespace)
	list, err := st.sessionList(ctx, q)
	if err != nil {
		return nil, err
	}
	return list, st.Lacks(ctx, "catalog", q.Namespace, func(sub events.Subject) bool {
		if !sub.IsSession() || projector.IsItem(sub) {
			return false
		}
		if q.Kind == "" {
			return true
		}
		o, err := st.loader.Peek(ctx, sub)
		return projector.Tolerate(err) != nil || o.Ledger().Created == 0 || o.Ledger().Kind == q.Kind // otherwise of another kind
	})
}

func (st *Store) sessionList(ctx context.Context, q projector.SessionQuery) ([]projector.Listed, error) {
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
		if projector.IsItem(info.Subject) {
			continue
		}
		s, err := st.loader.Listed(ctx, info.Subject)
		if err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	return q.Page(list), nil
}

// ErrNoCatalog reports that no catalog is available, or that it is behind.
var ErrNoCatalog = errors.New("no catalog is available, or it is behind the log")

// Progress lists the progress in runs of a session, in the order of the log, from the catalog. It includes every append
// that was acknowledged before the call. If a record of the session is lost, it comes with a *projector.HoleError.
// Without a catalog, and for the session of an item, the error is ErrNoCatalog: the caller may load the session and use
// projector.ProgressOf.
func (st *Store) Progress(ctx context.Context, q projector.ProgressQuery) ([]projector.Progress, error) {
	q.Namespace = cmp.Or(q.Namespace, st.config.Namespace)
	if st.config.Host.Progress == nil || projector.IsItem(events.Session(q.Namespace, q.Session)) {
		return nil, ErrNoCatalog
	}
	shown, err := st.Shows(ctx, "catalog")
	if err == nil && shown {
		var list []projector.Progress
		if list, err = st.config.Host.Progress(ctx, q); err == nil {
			return list, st.Lacks(ctx, "catalog", q.Namespace, func(sub events.Subject) bool { return sub == events.Session(q.Namespace, q.Session) })
		}
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return nil, fmt.Errorf("%w: %w", ErrNoCatalog, cmp.Or(err, context.DeadlineExceeded))
}
