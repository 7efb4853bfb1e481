package cmdutil

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// Views are the files of the views, to read.
type Views struct {
	Dir     string
	Catalog catalog.Reader
	durable events.Offset // that the store is known to hold; 0: not known
}

// AsOf returns up to where an answer goes that is read from several views: as far as all of
// them do.
func (v Views) AsOf(ctx context.Context, standings ...func(context.Context) (catalog.Standing, error)) (least projector.Cursor, err error) {
	for i, standing := range standings {
		s, err := standing(ctx)
		if err != nil {
			return least, err
		}
		head := max(least.Head, s.Cursor.Head, v.durable)
		if i == 0 || s.Cursor.Offset < least.Offset {
			least = s.Cursor
		}
		least.Head = head
	}
	return least, nil
}

// patient is how long the process that keeps the views is waited for, if it is not
// this one.
const patient = 5 * time.Second

// WithViews calls f with the views as they are after everything that is
// acknowledged now. A local store that nobody owns is opened for that only if one of the
// needed views does not show all of it; a store that cannot be opened is shown as far as
// the views go. On a full disk the views stand still, and if they cannot be read the log is
// folded, elsewhere.
func (a *App) WithViews(ctx context.Context, needs []string, f func(config.Config, Views) error) error {
	c, err := a.Config()
	if err != nil {
		return err
	}
	if c.Backend == config.Local {
		place, err := embedded.Look(c.Store)
		if err != nil {
			return err
		}
		if place.State != embedded.Present {
			return a.WithExisting(ctx, func(st *tally.Store) error {
				return a.folded(ctx, st, func(dir string) error { return a.withFiles(ctx, c, dir, nil, 0, f) })
			})
		}
		a.remarkLost(place.Lost)
		if pid, _ := embedded.OwnerOf(c.Store); pid == 0 {
			return a.withRest(ctx, c, place, needs, f)
		}
	}
	return a.withOpen(ctx, c, needs, f)
}

// withOpen calls f with the views of a store that is opened, or attached to.
func (a *App) withOpen(ctx context.Context, c config.Config, needs []string, f func(config.Config, Views) error) error {
	return a.WithStore(ctx, func(st *tally.Store) error {
		return a.shown(ctx, st, needs, func(dir string) error { return a.withFiles(ctx, c, dir, st.Log.Unreadable(), 0, f) })
	})
}

// withRest calls f with the views of a local store that nobody owns.
func (a *App) withRest(ctx context.Context, c config.Config, place embedded.Place, needs []string, f func(config.Config, Views) error) error {
	current, err := showsAll(ctx, place, needs)
	if current {
		if err := a.withFiles(ctx, c, c.Store, place.Lost, place.Durable, f); !errors.Is(err, catalog.ErrNoView) {
			return err
		}
	}
	opened := false
	open := a.withOpen(ctx, c, needs, func(c config.Config, v Views) error {
		opened = true
		return f(c, v)
	})
	if open == nil || opened || errors.Is(err, catalog.ErrNoView) || ctx.Err() != nil {
		return open
	}
	behind := a.withFiles(ctx, c, c.Store, place.Lost, place.Durable, f)
	if errors.Is(behind, catalog.ErrNoView) {
		return open
	}
	fmt.Fprintf(a.Err, "%s; what the views show is shown\n", plain.Printable(open.Error()))
	return behind
}

// showsAll reports whether each needed view of a store that nobody owns shows all that the
// store is known to hold.
func showsAll(ctx context.Context, place embedded.Place, needs []string) (bool, error) {
	for _, need := range needs {
		standing, err := catalog.StandingOf(ctx, place.Dir, need)
		if err != nil || standing.Cursor.Offset < max(place.Durable, standing.Cursor.Head) {
			return false, err
		}
	}
	return true, nil
}

// WithWork calls f with the view of what is to be done in a store that is open, as it is
// after everything that is acknowledged now: whoever lists a few of many need not read the
// log for it. Every store that a command opens has views, in its directory or in the user's
// cache; for one that is not there, and one whose views cannot be read, they are folded anew.
func (a *App) WithWork(ctx context.Context, st *tally.Store, f func(catalog.WorkReader) error) error {
	return a.withViewsOf(ctx, st, "work", func(dir string) error {
		r, err := catalog.OpenWork(ctx, dir)
		if err != nil {
			return err
		}
		defer r.Close()
		if err := projector.Tolerate(st.Lacks(ctx, "work", st.Namespace(), nil)); err != nil { // the command names it at its end
			return err
		}
		return f(r)
	})
}

// withViewsOf calls read with a directory of views of a store that is open, of which the one
// that is needed is up to date.
func (a *App) withViewsOf(ctx context.Context, st *tally.Store, need string, read func(dir string) error) error {
	c, err := a.Config()
	if err != nil {
		return err
	}
	if c.Backend == config.Local {
		if place, err := embedded.Look(c.Store); err != nil || place.State != embedded.Present {
			return errors.Join(err, a.folded(ctx, st, read))
		}
	}
	return a.shown(ctx, st, []string{need}, read)
}

// shown calls read with the directory of the views once those that are needed are up to date.
// If they cannot be read, the log is folded, elsewhere.
func (a *App) shown(ctx context.Context, st *tally.Store, needs []string, read func(dir string) error) error {
	var full error
	for _, need := range needs {
		full = errors.Join(full, a.upToDate(ctx, st, need))
		if full != nil && !errors.Is(full, log.ErrFull) && !errors.Is(full, catalog.ErrNoView) {
			return full
		}
	}
	err := read(st.ViewsDir())
	if errors.Is(err, catalog.ErrNoView) {
		if !errors.Is(full, log.ErrFull) && !a.full.wasSaid() {
			fmt.Fprintf(a.Err, "%s; the log is read instead, which takes longer\n", plain.Printable(err.Error()))
		}
		return a.folded(ctx, st, read)
	}
	return err
}

// remarkLost prints how many records the store has lost, and which. Lists do not show gaps.
func (a *App) remarkLost(lost []log.Hole) {
	if n := len(lost); n > 0 {
		at := make([]events.Offset, n)
		for i, h := range lost {
			at[i] = h.Offset
		}
		fmt.Fprintf(a.Err, "%s of this store cannot be read any more: tally verify%s names them: %s\n", plain.Count(n, "record"), a.StoreFlags(), offsetsText(at))
	}
}

// noteLost has the command end with the code of damage, as what it shows was made without the
// records of its namespace that are lost.
func (a *App) noteLost(namespace string, lost []log.Hole) {
	for _, h := range lost {
		sub, err := events.ParseNATS(h.Subject)
		if a.lost != nil && (err != nil || sub.Namespace == namespace) {
			a.lost.note(&events.DamageError{Offset: h.Offset})
		}
	}
}

// folded calls read with the directory of views that are made of the log and thrown away.
func (a *App) folded(ctx context.Context, st *tally.Store, read func(dir string) error) error {
	lg, err := a.Logger()
	if err != nil {
		return err
	}
	return catalog.Folded(ctx, st.Log, embedded.Views(), lg, read)
}

func (a *App) withFiles(ctx context.Context, c config.Config, dir string, lost []log.Hole, durable events.Offset, f func(config.Config, Views) error) error {
	r, err := catalog.Open(ctx, dir)
	if err != nil {
		return err
	}
	defer r.Close()
	standing, err := r.Standing(ctx)
	if err != nil {
		return err
	}
	a.noteLost(c.Namespace, embedded.Lacking(standing, lost))
	return f(c, Views{dir, r, durable})
}

// upToDate returns when a view shows what is acknowledged now. A process that
// keeps it is waited for; where none does, this one brings it up to date.
func (a *App) upToDate(ctx context.Context, st *tally.Store, view string) error {
	if len(st.Runners()) > 0 {
		return a.watch(ctx, st, view)
	}
	_, err := st.Shows(ctx, view) // if not in time, what is there is shown, with how far it goes
	if errors.Is(err, projector.ErrNotFound) {
		return a.projectOnce(ctx, st, view)
	}
	return err
}

// watch waits for a view that this process keeps, and shows how far it is.
func (a *App) watch(ctx context.Context, st *tally.Store, view string) error {
	at, err := st.Log.Durable(ctx)
	if err != nil {
		return err
	}
	progress, done, err := a.pace(ctx, st, "reading the log for the "+view)
	if err != nil {
		return err
	}
	defer done()
	for {
		step, stop := context.WithTimeout(ctx, 500*time.Millisecond)
		err := st.Wait(step, view, at)
		stop()
		if err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		for _, r := range st.Runners() {
			if r.View.Name() == view {
				progress(r.Cursor())
			}
		}
	}
}

// AsOf says how far a view goes, and if the store is known to hold more, how to
// see it.
func (a *App) AsOf(c projector.Cursor) {
	if c.Head > c.Offset {
		fmt.Fprintf(a.Err, "as of %v; the store holds events up to %v: tally daemon views --once%s shows them\n", c.Offset, c.Head, a.StoreFlags())
		return
	}
	fmt.Fprintf(a.Err, "as of %v\n", c.Offset)
}
