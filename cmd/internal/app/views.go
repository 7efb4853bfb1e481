package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/plain"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/projector/catalog"
)

// Views are the files of the views, to read.
type Views struct {
	Dir     string
	Catalog catalog.Reader
}

// patient is how long the process that keeps the views is waited for, if it is not
// this one.
const patient = 5 * time.Second

// WithViews calls f with the views as they are after everything that is
// acknowledged now. A local store that nobody owns is not opened for that: its last owner
// brought its views up to date, or noted that they are not. need names the view that
// must be up to date. On a full disk the views stand still: what they show is shown,
// and if they cannot be read the log is folded anew, elsewhere.
func (a *App) WithViews(ctx context.Context, need string, f func(config.Config, Views) error) error {
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
				return a.folded(ctx, st, func(dir string) error { return withFiles(ctx, c, dir, f) })
			})
		}
		a.remarkLost(place)
		if pid, _ := embedded.OwnerOf(c.Store); pid == 0 {
			if err := withFiles(ctx, c, c.Store, f); !errors.Is(err, catalog.ErrNoView) {
				return err
			}
		}
	}
	return a.WithStore(ctx, func(st *tally.Store) error {
		return a.shown(ctx, st, need, func(dir string) error { return withFiles(ctx, c, dir, f) })
	})
}

// WithWork calls f with the view of what is to be done in a store that is open, as it is
// after everything that is acknowledged now: whoever lists a few of many need not read the
// log for it. Every store that a command opens has views, in its directory or in the user's
// cache; for one that is not there, and one whose views cannot be read, they are folded anew.
func (a *App) WithWork(ctx context.Context, st *tally.Store, f func(catalog.WorkReader) error) error {
	read := func(dir string) error {
		r, err := catalog.OpenWork(ctx, dir)
		if err != nil {
			return err
		}
		defer r.Close()
		return f(r)
	}
	c, err := a.Config()
	if err != nil {
		return err
	}
	if c.Backend == config.Local {
		if place, err := embedded.Look(c.Store); err != nil || place.State != embedded.Present {
			return errors.Join(err, a.folded(ctx, st, read))
		}
	}
	return a.shown(ctx, st, "work", read)
}

// shown calls read with the directory of the views once the one that is needed is up to date.
// If it cannot be read, the log is folded anew, elsewhere.
func (a *App) shown(ctx context.Context, st *tally.Store, need string, read func(dir string) error) error {
	full := a.upToDate(ctx, st, need)
	if full != nil && !errors.Is(full, log.ErrFull) && !errors.Is(full, catalog.ErrNoView) {
		return full
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

// remarkLost says that a store has lost records, to who looks at a list in which nothing
// tells that.
func (a *App) remarkLost(p embedded.Place) {
	if n := len(p.Lost); n > 0 {
		fmt.Fprintf(a.Err, "%s of this store cannot be read any more: tally verify%s names them\n", plain.Count(n, "record"), a.StoreFlags())
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

func withFiles(ctx context.Context, c config.Config, dir string, f func(config.Config, Views) error) error {
	r, err := catalog.Open(ctx, dir)
	if err != nil {
		return err
	}
	defer r.Close()
	return f(c, Views{dir, r})
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
		fmt.Fprintf(a.Err, "as of %v; the store holds events up to %v: tally project --once%s shows them\n", c.Offset, c.Head, a.StoreFlags())
		return
	}
	fmt.Fprintf(a.Err, "as of %v\n", c.Offset)
}
