package embedded

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/projector/view"
)

// ownViews are the views that this program brings. It keeps those whose locks it gets, whether it owns the store or not:
// the owner is often a process without their code.
type ownViews struct {
	list   []view.View
	dir    string
	still  bool         // keep none
	room   func() error // see projector.Runner; nil: always room
	logger *slog.Logger

	ready chan struct{} // closed when src is set
	src   *tally.Log

	mu      sync.Mutex // guards running
	running map[string]*running
}

// running is a view that this process keeps, until done is closed.
type running struct {
	*projector.Runner
	done <-chan struct{}
}

// bring makes a store keep the program's views in the directory of its views.
func (o Options) bring(st *tally.Config, keep bool) {
	if len(o.Views) == 0 {
		return
	}
	own := &ownViews{list: o.Views, dir: st.Host.ViewsDir, still: o.Still || !keep, room: st.Host.Room, logger: o.Logger, ready: make(chan struct{}), running: make(map[string]*running)}
	st.Host.Own = own
	beside := st.Host.Beside
	st.Host.Beside = func(ctx context.Context, store *tally.Store) {
		var all sync.WaitGroup
		defer all.Wait()
		if beside != nil {
			all.Go(func() { beside(ctx, store) })
		}
		own.src = store.Log
		close(own.ready)
		for _, v := range own.list {
			if !own.still {
				all.Go(func() { own.keep(ctx, v) })
			}
		}
	}
}

// keepEvery is the interval in which a process looks whether a view is free, and whether its file was removed.
const keepEvery = 500 * time.Millisecond

// source returns the log of the store, which is open or about to be.
func (w *ownViews) source() *tally.Log {
	<-w.ready
	return w.src
}

// keep keeps a view while no other process does, until ctx is done or the owner of the store has ended: then another
// program may keep it.
func (w *ownViews) keep(ctx context.Context, v view.View) {
	ctx, stop := w.source().UntilGone(ctx)
	defer stop()
	var last string // error that was logged
	for ctx.Err() == nil {
		lock, err := v.Keep(w.dir)
		if err == nil {
			w.run(ctx, v)
			err = lock.Close()
		}
		if err != nil && !errors.Is(err, catalog.ErrKept) && err.Error() != last {
			last = err.Error()
			w.logger.Warn("view cannot be kept, will retry", "view", v.Name, "err", err)
		}
		select {
		case <-time.After(keepEvery):
		case <-ctx.Done():
		}
	}
}

// run updates a view until ctx is done, or its file is removed.
func (w *ownViews) run(ctx context.Context, v view.View) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	e := v.New(w.dir, w.logger)
	defer e.Close()
	r := w.runner(e, v.Pace)
	done := make(chan struct{})
	defer close(done)
	var both sync.WaitGroup
	r.Start(ctx, &both)
	w.set(v.Name, &running{r, done})
	defer w.set(v.Name, nil)
	both.Go(func() { w.watch(ctx, stop, v, r) })
	both.Wait()
}

func (w *ownViews) runner(e catalog.Edition, p projector.Pace) *projector.Runner {
	return &projector.Runner{Log: w.source(), View: e, Pace: p, Room: w.room, Logger: w.logger}
}

// set notes that this process keeps a view, or, with nil, that it does so no longer.
func (w *ownViews) set(name string, r *running) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running[name] = r
}

func (w *ownViews) get(name string) *running {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.running[name]
}

// watch calls stop when the file of a view was removed or replaced: an idle view would not notice. When the view has
// caught up for the first time, watch removes the files of its lower versions.
func (w *ownViews) watch(ctx context.Context, stop func(), v view.View, r *projector.Runner) {
	head, err := r.Log.Head(ctx)
	isNew := err == nil
	var seen os.FileInfo
	for {
		now, err := os.Stat(filepath.Join(w.dir, v.File))
		if seen != nil && (err != nil || !os.SameFile(seen, now)) {
			stop()
			return
		}
		if err == nil {
			seen = now
		}
		if isNew && r.Cursor().Offset >= head {
			isNew = false
			if err := v.RemoveOlder(w.dir); err != nil {
				w.logger.Warn("files of lower versions of a view stay", "view", v.Name, "err", err)
			}
		}
		select {
		case <-time.After(keepEvery):
		case <-ctx.Done():
			return
		}
	}
}

// named returns the view with a name, or ErrNotFound.
func (w *ownViews) named(name string) (view.View, error) {
	for _, v := range w.list {
		if v.Name == name {
			return v, nil
		}
	}
	return view.View{}, fmt.Errorf("view %s: %w: the program does not bring it", name, tally.ErrNotFound)
}

// Runners implements tally.OwnViews.
func (w *ownViews) Runners() []*projector.Runner {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []*projector.Runner
	for _, v := range w.list {
		if r := w.running[v.Name]; r != nil {
			list = append(list, r.Runner)
		}
	}
	return list
}

// Wait implements tally.OwnViews. The process that keeps the view may change meanwhile.
func (w *ownViews) Wait(ctx context.Context, name string, at events.Offset) error {
	v, err := w.named(name)
	if err == nil && w.still {
		err = fmt.Errorf("view %s: %w: this process keeps no views", name, tally.ErrNotFound)
	}
	if err != nil {
		return err
	}
	ctx, cancel := w.source().UntilGone(ctx)
	defer cancel()
	for {
		step, stop := context.WithCancel(ctx)
		if r := w.get(name); r != nil {
			go func() {
				select {
				case <-r.done:
					stop()
				case <-step.Done():
				}
			}()
			err = r.Wait(step, at)
		} else {
			time.AfterFunc(keepEvery, stop)
			err = v.Wait(step, w.dir, at)
		}
		isOver := step.Err() != nil
		stop()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("waiting for view %s to show %v: %w", name, at, context.Cause(ctx))
		case !isOver:
			return err
		}
	}
}

// Open implements tally.OwnViews.
func (w *ownViews) Open(ctx context.Context, name string) (*sql.DB, error) {
	v, err := w.named(name)
	if err != nil {
		return nil, err
	}
	db, err := v.Read(ctx, w.dir)
	if errors.Is(err, catalog.ErrNoView) {
		err = fmt.Errorf("view %s: %w: %w", name, tally.ErrNotFound, err)
	}
	return db, err
}

// Rebuild implements tally.OwnViews.
func (w *ownViews) Rebuild(ctx context.Context, name string) error {
	v, err := w.named(name)
	if err != nil {
		return err
	}
	e := v.Next(w.dir, w.logger)
	err = e.Check(ctx)
	switch {
	case errors.Is(err, catalog.ErrNoView): // there is no readable view to keep meanwhile
		if err = catalog.Remove(filepath.Join(w.dir, v.File)); err == nil {
			e = v.New(w.dir, w.logger)
			err = w.runner(e, v.Pace).CatchUp(ctx, nil)
		}
	case err == nil:
		err = catalog.Rebuild(ctx, w.runner(e, v.Pace), e, nil)
	}
	if err = errors.Join(err, e.Close()); err != nil {
		return fmt.Errorf("view %s: %w", name, err)
	}
	return nil
}

// Retry implements tally.OwnViews.
func (w *ownViews) Retry(ctx context.Context, name string) ([]projector.Quarantine, error) {
	v, err := w.named(name)
	if err != nil {
		return nil, err
	}
	e := v.New(w.dir, w.logger)
	list, err := w.runner(e, v.Pace).Retry(ctx)
	if err = errors.Join(err, e.Close()); err != nil {
		return list, fmt.Errorf("view %s: %w", name, err)
	}
	return list, nil
}

// Verify implements tally.OwnViews.
func (w *ownViews) Verify(ctx context.Context) ([]projector.Finding, error) {
	return catalog.Verify(ctx, w.source(), w.dir, w.list, nil)
}

// Refold implements tally.OwnViews.
func (w *ownViews) Refold(ctx context.Context, subjects []events.Subject) (err error) {
	kept := make(map[string]bool)
	for _, v := range w.list {
		if r := w.get(v.Name); r != nil {
			kept[v.File] = true
			err = errors.Join(err, v.Refold(ctx, w.dir, r.Runner, subjects))
		}
	}
	return errors.Join(err, catalog.RemoveOwn(w.dir, func(f catalog.OwnFile) bool { return kept[f.File()] }))
}
