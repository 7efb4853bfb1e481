package cmdutil

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/projector"
)

// ViewNames returns the arguments, or the names of all views without arguments.
func ViewNames(args []string) []string {
	if len(args) > 0 {
		return slices.Clone(args)
	}
	var names []string
	for _, v := range catalog.Views(render.Opening, render.Said) {
		names = append(names, v.Name)
	}
	return names
}

// viewNamed returns the view with a name.
func viewNamed(name string) (catalog.View, error) {
	list := catalog.Views(render.Opening, render.Said)
	i := slices.IndexFunc(list, func(v catalog.View) bool { return v.Name == name })
	if i < 0 {
		return catalog.View{}, cli.Usagef("there is no view %q: want %s", name, Or(ViewNames(nil)))
	}
	return list[i], nil
}

// keptView is a view that this command updates.
type keptView struct {
	*projector.Runner
	io.Closer
}

// openViews opens views of a directory for writing.
func (a *App) openViews(st *tally.Store, dir string, names []string) ([]keptView, error) {
	lg, err := a.Logger()
	if err != nil {
		return nil, err
	}
	var list []keptView
	for _, name := range names {
		v, err := viewNamed(name)
		if err != nil {
			return nil, err
		}
		e := v.New(dir, lg)
		list = append(list, keptView{&projector.Runner{Log: st.Log, View: e, Pace: v.Pace, Logger: lg}, e})
	}
	return list, nil
}

// projectOnce updates a view that no process keeps. If a process keeps it, projectOnce waits for that process.
func (a *App) projectOnce(ctx context.Context, st *tally.Store, view string) error {
	at, err := st.Log.Durable(ctx)
	if err != nil {
		return err
	}
	kept, err := catalog.Keep(st.ViewsDir())
	if errors.Is(err, catalog.ErrKept) {
		waiting, stop := context.WithTimeout(ctx, patient)
		defer stop()
		if err := catalog.Wait(waiting, st.ViewsDir(), view, at); err != nil && waiting.Err() == nil {
			return err
		}
		return ctx.Err()
	}
	if err != nil {
		return err
	}
	defer kept.Close()
	return a.catchUp(ctx, st, st.ViewsDir(), []string{view})
}

// catchUp updates views up to the present end of the log.
func (a *App) catchUp(ctx context.Context, st *tally.Store, dir string, names []string) error {
	views, err := a.openViews(st, dir, names)
	if err != nil {
		return err
	}
	for _, v := range views {
		progress, done, err := a.pace(ctx, st, "projecting "+v.View.Name())
		if err != nil {
			return err
		}
		err = v.CatchUp(ctx, progress)
		done()
		if err := errors.Join(err, v.Close()); err != nil {
			return err
		}
	}
	return nil
}

// Follow waits until views are up to date that the owner of the store keeps, in this or another process.
func (a *App) Follow(ctx context.Context, st *tally.Store, names []string) error {
	for _, name := range ViewNames(names) {
		if err := a.upToDate(ctx, st, name); err != nil {
			return err
		}
	}
	return nil
}

// Project keeps views up to date until ctx is done; with once, up to the present end of the log. If another process
// keeps them, it waits for its turn.
func (a *App) Project(ctx context.Context, st *tally.Store, dir string, names []string, once bool) error {
	names = ViewNames(names)
	kept, err := a.turn(ctx, dir)
	if err != nil {
		return err
	}
	defer kept.Close()
	if once {
		return a.catchUp(ctx, st, dir, names)
	}
	return a.keep(ctx, st, dir, names)
}

// turnStep is the interval in which a waiting process looks whether the views are free. It is a fraction of the time
// after which it takes over from a dead process.
const turnStep = 100 * time.Millisecond

// turn waits until no other process keeps the views.
func (a *App) turn(ctx context.Context, dir string) (io.Closer, error) {
	for said := false; ; said = true {
		kept, err := catalog.Keep(dir)
		if !errors.Is(err, catalog.ErrKept) {
			return kept, err
		}
		if !said {
			fmt.Fprintf(a.Err, "another process keeps the views in %s; this one takes over when that ends\n", dir)
		}
		select {
		case <-time.After(turnStep):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// keep runs the views until ctx is done.
func (a *App) keep(ctx context.Context, st *tally.Store, dir string, names []string) error {
	views, err := a.openViews(st, dir, names)
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	for _, v := range views {
		running.Go(func() { v.Run(ctx) })
	}
	fmt.Fprintf(a.Err, "keeping the views in %s; stop it with Ctrl-C\n", dir)
	running.Wait()
	for _, v := range views {
		err = errors.Join(err, v.Close())
	}
	return err
}
