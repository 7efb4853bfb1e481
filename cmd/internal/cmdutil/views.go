package cmdutil

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/reads"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/internal/storedir"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// patient is the time limit for waiting until another process has updated its views.
const patient = 5 * time.Second

// WithViews calls f with views that show all records acknowledged before the call. A local store without an owner is
// opened only if a needed view is behind. If the store cannot be opened, f gets the views as they are. On a full disk
// the views are not updated; if they cannot be read, they are built from the log in another directory.
func (a *App) WithViews(ctx context.Context, needs []string, f func(config.Config, reads.Views) error) error {
	c, err := a.Config()
	if err != nil {
		return err
	}
	if c.Backend == config.Local {
		place, err := storedir.Inspect(c.Store)
		if err != nil {
			return err
		}
		if place.State != storedir.Present {
			return a.WithExisting(ctx, func(st *tally.Store) error {
				return a.folded(ctx, st, func(dir string) error { return a.withFiles(ctx, c, dir, nil, 0, f) })
			})
		}
		a.warnLost(place.Lost)
		if pid, _ := storedir.OwnerOf(c.Store); pid == 0 {
			return a.withRest(ctx, c, place, needs, f)
		}
	}
	return a.withOpen(ctx, c, needs, f)
}

// withOpen calls f with the views of a store that it opens or attaches to.
func (a *App) withOpen(ctx context.Context, c config.Config, needs []string, f func(config.Config, reads.Views) error) error {
	return a.WithStore(ctx, func(st *tally.Store) error {
		return a.shown(ctx, st, needs, func(dir string) error { return a.withFiles(ctx, c, dir, st.Log.Unreadable(), 0, f) })
	})
}

// withRest calls f with the views of a local store that has no owner.
func (a *App) withRest(ctx context.Context, c config.Config, place storedir.Info, needs []string, f func(config.Config, reads.Views) error) error {
	current, err := showsAll(ctx, place, needs)
	if current {
		if err := a.withFiles(ctx, c, c.Store, place.Lost, place.Durable, f); !errors.Is(err, catalog.ErrNoView) {
			return err
		}
	}
	opened := false
	open := a.withOpen(ctx, c, needs, func(c config.Config, v reads.Views) error {
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
	fmt.Fprintf(a.Err, "%s; the output comes from the views\n", plain.Printable(open.Error()))
	return behind
}

// showsAll reports whether the needed views of a store without an owner show all records that the store is known to
// hold.
func showsAll(ctx context.Context, place storedir.Info, needs []string) (bool, error) {
	for _, need := range needs {
		standing, err := catalog.StandingOf(ctx, place.Dir, need)
		if err != nil || standing.Cursor.Offset < max(place.Durable, standing.Cursor.Head) {
			return false, err
		}
	}
	return true, nil
}

// WithWork calls f with the view of open work in an open store. The view shows all records acknowledged before the
// call, so lists need not read the log. If the view is missing or unreadable, it is built from the log.
func (a *App) WithWork(ctx context.Context, st *tally.Store, f func(catalog.WorkReader) error) error {
	return a.withViewsOf(ctx, st, "work", func(dir string) error {
		r, err := catalog.OpenWork(ctx, dir)
		if err != nil {
			return err
		}
		defer r.Close()
		if err := projector.Tolerate(st.Lacks(ctx, "work", st.Namespace(), nil)); err != nil { // the command reports the lost records at its end
			return err
		}
		return f(r)
	})
}

// withViewsOf calls read with the directory of views of an open store, after the needed view is up to date.
func (a *App) withViewsOf(ctx context.Context, st *tally.Store, need string, read func(dir string) error) error {
	c, err := a.Config()
	if err != nil {
		return err
	}
	if c.Backend == config.Local {
		if place, err := storedir.Inspect(c.Store); err != nil || place.State != storedir.Present {
			return errors.Join(err, a.folded(ctx, st, read))
		}
	}
	return a.shown(ctx, st, []string{need}, read)
}

// shown calls read with the directory of the views, after the needed ones are up to date. If they cannot be read, they
// are built from the log in another directory.
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

// warnLost prints how many records the store has lost, and their offsets. Lists do not show gaps.
func (a *App) warnLost(lost []log.Hole) {
	if n := len(lost); n > 0 {
		at := make([]events.Offset, n)
		for i, h := range lost {
			at[i] = h.Offset
		}
		fmt.Fprintf(a.Err, "%s of this store cannot be read any more: tally verify%s names them: %s\n", plain.Count(n, "record"), a.StoreFlags(), offsetsText(at))
	}
}

// noteLost makes the command end with the exit code for damage if records of its namespace are lost.
func (a *App) noteLost(namespace string, lost []log.Hole) {
	for _, h := range lost {
		sub, err := events.ParseNATS(h.Subject)
		if a.lost != nil && (err != nil || sub.Namespace == namespace) {
			a.lost.note(&events.DamageError{Offset: h.Offset})
		}
	}
}

// folded calls read with a directory of views that are built from the log and removed afterwards.
func (a *App) folded(ctx context.Context, st *tally.Store, read func(dir string) error) error {
	lg, err := a.Logger()
	if err != nil {
		return err
	}
	return catalog.Folded(ctx, st.Log, catalog.Views(render.Opening, render.Said), lg, read)
}

func (a *App) withFiles(ctx context.Context, c config.Config, dir string, lost []log.Hole, durable events.Offset, f func(config.Config, reads.Views) error) error {
	v, err := reads.OpenViews(ctx, dir)
	if err != nil {
		return err
	}
	defer v.Close()
	standing, err := v.Catalog.Standing(ctx)
	if err != nil {
		return err
	}
	v.Durable = durable
	a.noteLost(c.Namespace, storedir.MissingFrom(standing, lost))
	return f(c, v)
}

// upToDate waits until a view shows all records acknowledged before the call. If no process keeps the view, this one
// updates it.
func (a *App) upToDate(ctx context.Context, st *tally.Store, view string) error {
	if len(st.Runners()) > 0 {
		return a.watch(ctx, st, view)
	}
	_, err := st.Shows(ctx, view) // after the time limit, the view is shown with its offset
	if errors.Is(err, projector.ErrNotFound) {
		return a.projectOnce(ctx, st, view)
	}
	return err
}

// watch waits for a view that this process keeps, and prints its progress.
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

// AsOf prints the offset of a view, and if the store holds more, the command that updates it.
func (a *App) AsOf(c projector.Cursor) {
	if c.Head > c.Offset {
		fmt.Fprintf(a.Err, "as of %v; the store holds events up to %v: tally daemon views --once%s shows them\n", c.Offset, c.Head, a.StoreFlags())
		return
	}
	fmt.Fprintf(a.Err, "as of %v\n", c.Offset)
}
