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
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/projector"
)

// ViewNames returns the views that arguments name: all if there are none.
func ViewNames(args []string) []string {
	if len(args) > 0 {
		return slices.Clone(args)
	}
	var names []string
	for _, v := range embedded.Views() {
		names = append(names, v.Name)
	}
	return names
}

// viewNamed returns one of the views.
func viewNamed(name string) (catalog.View, error) {
	list := embedded.Views()
	i := slices.IndexFunc(list, func(v catalog.View) bool { return v.Name == name })
	if i < 0 {
		return catalog.View{}, cli.Usagef("there is no view %q: want %s", name, Or(ViewNames(nil)))
	}
	return list[i], nil
}

// keptView is a view that this command writes.
type keptView struct {
	*projector.Runner
	io.Closer
}

// openViews returns views of a directory that are to be written.
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

// projectOnce brings a view up to date that nobody keeps; a process that keeps it is
// waited for.
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

// catchUp brings views to where the log ends now.
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

// Follow brings views up to date that are kept by the process that owns the store,
// this one or another.
func (a *App) Follow(ctx context.Context, st *tally.Store, names []string) error {
	for _, name := range ViewNames(names) {
		if err := a.upToDate(ctx, st, name); err != nil {
			return err
		}
	}
	return nil
}

// Project keeps views until ctx is done; once, until they show where the log ends
// now. If another process keeps them, it waits for its turn.
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

// turnStep is how often a process that waits for its turn looks: a part of the time
// in which it takes over from one that died.
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
