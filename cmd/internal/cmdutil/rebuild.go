package cmdutil

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/projector"
)

// Rebuild builds a view in a new file beside the present one, and replaces it. It continues after a process that was
// killed. It returns the offset of the view.
func (a *App) Rebuild(ctx context.Context, st *tally.Store, name string) (events.Offset, error) {
	lg, err := a.Logger()
	if err != nil {
		return 0, err
	}
	v, err := viewNamed(name)
	if err != nil {
		return 0, err
	}
	e := v.Next(st.ViewsDir(), lg)
	defer e.Close()
	r := &projector.Runner{Log: st.Log, Logger: lg}
	progress, done, err := a.pace(ctx, st, "rebuilding "+name)
	if err != nil {
		return 0, err
	}
	defer done()
	switch err := e.Check(ctx); {
	case errors.Is(err, catalog.ErrNoView):
		return a.renew(ctx, st, v, progress) // there is no readable view to keep meanwhile
	case err != nil:
		return 0, err
	}
	err = catalog.Rebuild(ctx, r, e, progress)
	return r.Cursor().Offset, err
}

// renew builds a view in a new file.
func (a *App) renew(ctx context.Context, st *tally.Store, view catalog.View, progress func(projector.Cursor)) (events.Offset, error) {
	if err := catalog.Remove(filepath.Join(st.ViewsDir(), view.File)); err != nil {
		return 0, err
	}
	views, err := a.openViews(st, st.ViewsDir(), []string{view.Name})
	if err != nil {
		return 0, err
	}
	v := views[0]
	err = v.CatchUp(ctx, progress)
	return v.Cursor().Offset, errors.Join(err, v.Close())
}

// Retry folds the records again that the views had set aside, and returns those that are in the views now.
func (a *App) Retry(ctx context.Context, st *tally.Store, names []string) ([]projector.Quarantine, error) {
	views, err := a.openViews(st, st.ViewsDir(), names)
	if err != nil {
		return nil, err
	}
	var mended []projector.Quarantine
	for _, v := range views {
		again, err := v.Retry(ctx)
		mended = append(mended, again...)
		if err := errors.Join(err, v.Close()); err != nil {
			return mended, err
		}
	}
	return mended, nil
}

// pace prints the progress of views and the remaining time. The returned functions are called for each step and at the
// end.
func (a *App) pace(ctx context.Context, st *tally.Store, what string) (step func(projector.Cursor), done func(), err error) {
	head, err := st.Log.Head(ctx)
	if err != nil {
		return nil, nil, err
	}
	p := cli.NewProgress(a.Err, a.Progress, what)
	begun, first, last := time.Now(), events.Offset(0), events.Offset(0)
	step = func(c projector.Cursor) {
		if last = c.Offset; first == 0 {
			first, begun = c.Offset, time.Now() // an earlier run may have folded the records before it
		}
		p.At(int64(c.Offset), int64(max(head, c.Offset)), plain.Count(int(c.Offset), "record")+left(begun, first, c.Offset, head))
	}
	return step, func() { p.Done(int64(last), plain.Count(int(last), "record")) }, nil
}

// left returns the remaining time, "" if it is unknown.
func left(begun time.Time, first, at, head events.Offset) string {
	took := time.Since(begun)
	if at <= first || at >= head || took < time.Second {
		return ""
	}
	rest := time.Duration(float64(took) * float64(head-at) / float64(at-first))
	return fmt.Sprintf(", about %s left", rest.Round(time.Second))
}

// VerifyViews folds the log from the beginning and compares the views with the result.
func (a *App) VerifyViews(ctx context.Context, st *tally.Store) ([]projector.Finding, error) {
	steps := make(map[string]func(projector.Cursor))
	for _, name := range ViewNames(nil) {
		step, done, err := a.pace(ctx, st, "verifying "+name)
		if err != nil {
			return nil, err
		}
		defer done()
		steps[name] = step
	}
	return catalog.Verify(ctx, st.Log, st.ViewsDir(), catalog.Views(render.Opening, render.Said), func(view string, c projector.Cursor) { steps[view](c) })
}
