package embedded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/daemon"
	"github.com/tallylog/tally/internal/daemon/runner"
	"github.com/tallylog/tally/internal/erasure"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/quota"
	"github.com/tallylog/tally/internal/registry"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/internal/storedir"
	"github.com/tallylog/tally/internal/tree/keeper"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/projector/view"
	"github.com/tallylog/tally/snapshot"
)

// ServerVersion is the version of nats-server in this build.
const ServerVersion = server.VERSION

// Options select a store and configure its use. The zero value opens the store of the configuration that applies to the
// working directory.
type Options struct {
	ConfigDir string // where the search for the configuration starts, upwards; default: the working directory
	Backend   string // local, memory or nats; default: the configuration's
	Store     string // directory of a local store; default: the configuration's
	Namespace string // of sessions and documents; default: the configuration's
	URL       string // of the server of backend nats; default: the configuration's
	Context   string // name of a context of the nats command, which describes that server; default: the configuration's

	// MinDurability is buffered, durable or replicated. If the store's acknowledgements guarantee less, Open returns a
	// *log.DurabilityError. Default: the configuration's.
	MinDurability string

	Source string           // CloudEvents source of this program's events; default: tally.Config's
	Actor  string           // the author of this program's events; default: none
	Logger *slog.Logger     // default: discard
	Policy projector.Policy // of snapshots, used if this process owns the store

	Kinds map[string]tally.Kind // checks documents by their kind; default: no checks

	// Types are the types of events that this program defines: see events.Define. Open registers those that the store
	// lacks. If the store has one with another movement or other offsets, the error is an *events.TypeError. A schema
	// that the store has stays as it is: tally types add replaces it.
	Types []events.Type

	// Views are the views that this program folds: see package projector/view. Open registers their types as it does
	// Types. A process keeps those that no other process keeps, whether it owns the store or not. Still keeps none.
	Views []view.View

	Observer log.Observer // observes the log if this process owns the store; default: none

	// Wait bounds how long Open waits for another process that is opening or closing the store. Default: 10 s.
	Wait time.Duration

	// Own makes Open wait until this process can own a local store, instead of attaching to its owner.
	Own bool

	// Listen makes the server listen for other machines if this process owns the store. Set Own, too.
	Listen *Listen

	// Existing creates no local store. If the store is missing, Open returns an empty store and writes nothing. It is
	// for programs that only read, and whose user may have misspelled a name.
	Existing bool

	// Look reads a local store without a server if no process has it open and it was closed in order. The store then
	// takes no appends, writes neither snapshots nor views, and shows nothing that is appended later. Some questions
	// return log.ErrNeedsServer: open the store without Look. Otherwise Look has no effect. It is for programs that
	// look at little: opening the store costs the same for any number of sessions.
	Look bool

	// Still keeps this process from updating snapshots and views if it owns the store. It is for programs that inspect
	// them.
	Still bool

	// Daemons returns the background workers of a store, such as tavern.Daemons. They run from open to close if this
	// process owns the store. An attached process runs none: see RunDaemons. nil: no daemons. Callers need not name the
	// result's type.
	Daemons func(st *tally.Store) ([]daemon.Daemon, error)

	// Trees returns a layout by its name, such as taverndir.Layout{} for tavern. If this process owns the store, it
	// keeps the trees of the configuration and the trees that attached processes name, from open to close. With
	// Existing, it opens a tree when it is first needed. An attached process asks the owner to keep the trees of its
	// own configuration. nil: this process keeps no trees.
	Trees func(layout string) (layouts.Layout, bool)

	// Progress is called about once a second during a long start.
	Progress func(elapsed time.Duration)

	refused error // the error of appends if this process owns the store; nil: appends are allowed
	shadow  bool  // the directory is a temporary one for this process alone
}

// Open opens a store. The configuration alone decides the backend. For a local store, this process becomes the owner or
// attaches to the owner. A store in memory lasts as long as the process. The backend nats is a server that others run.
// If the configuration is wrong, the error is a *config.Error that names file, line and field.
func Open(ctx context.Context, o Options) (*tally.Store, error) {
	c, err := o.resolve()
	if err != nil {
		return nil, err
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	for _, n := range c.Notices {
		o.Logger.Warn(n.Text, "found", n.Path, "instead", n.Instead)
	}
	switch c.Backend {
	case config.Memory:
		return openMemory(ctx, o, c)
	case config.NATS:
		return dial(ctx, o, c)
	}
	info, err := storedir.Inspect(c.Store)
	if err != nil {
		return nil, err
	}
	if o.Existing && info.State != storedir.Present {
		return openNothing(ctx, o, c)
	}
	if moved := storedir.Moved(c.Store); moved != nil {
		o.Logger.Debug("the store takes no appends", "dir", c.Store, "why", moved)
		o.Trees, o.Daemons, o.Types, o.refused = nil, nil, nil, moved
	}
	if err := storedir.Copying(c.Store); err != nil {
		return nil, fmt.Errorf("embedded: open %s: %w", c.Store, err)
	}
	if o.Look && info.State == storedir.Present {
		st, err := look(ctx, o, c, info)
		if err == nil {
			return st, nil
		}
		o.Logger.Debug("the store is opened with its server", "dir", c.Store, "why", err)
	}
	return openLocal(ctx, o, c)
}

// Check checks the configuration without opening the store, and returns the error that Open would return.
func (o Options) Check() error {
	c, err := o.resolve()
	if err == nil {
		_, err = o.trees(c, c.Store)
	}
	return err
}

// trees returns the trees of the store in a directory. "" means a store in memory.
func (o Options) trees(c config.Config, dir string) (*keeper.Trees, error) {
	return keeper.New(keeper.Config{Store: c, Layout: o.Trees, Lazy: o.Existing, Logger: o.Logger}, dir)
}

// beside returns the function that works beside a store as long as this process has it open: it keeps the trees and
// runs the daemons.
func (o Options) beside(dir string, ts *keeper.Trees) func(context.Context, *tally.Store) {
	return func(ctx context.Context, st *tally.Store) {
		var all sync.WaitGroup
		defer all.Wait()
		all.Go(func() { ts.Run(ctx, st) })
		if o.Daemons == nil || o.Still {
			return
		}
		daemons, err := o.Daemons(st)
		if err == nil && len(daemons) > 0 {
			err = runner.Run(ctx, st, dir, daemons, o.Logger)
		}
		if err != nil {
			o.Logger.Warn("the store's daemons have stopped", "err", err)
		}
	}
}

// RunDaemons runs daemons, such as tavern.Daemons, on a store until ctx is done, and then returns nil. It is for stores
// whose owner runs no daemons, and for stores on a server that others run. dir is the store's directory, in which
// RunDaemons reports about the daemons; "" writes no report. A nil logger discards.
func RunDaemons(ctx context.Context, st *tally.Store, dir string, daemons []daemon.Daemon, lg *slog.Logger) error {
	return runner.Run(ctx, st, dir, daemons, lg)
}

func (o Options) resolve() (config.Config, error) {
	if err := catalog.CheckOwn(o.Views); err != nil {
		return config.Config{}, fmt.Errorf("embedded: open: %w", err)
	}
	dir := o.ConfigDir
	if dir == "" {
		var err error
		if dir, err = os.Getwd(); err != nil {
			return config.Config{}, fmt.Errorf("embedded: open: %w", err)
		}
	}
	c, err := config.Resolve(dir, config.Overrides{Backend: o.Backend, Store: o.Store, Namespace: o.Namespace, URL: o.URL, Context: o.Context, MinDurability: o.MinDurability}, os.Getenv)
	if err != nil {
		return c, fmt.Errorf("embedded: open: %w", err)
	}
	return c, nil
}

// openNothing returns an empty store for a directory without a store. It refuses appends.
func openNothing(ctx context.Context, o Options, c config.Config) (*tally.Store, error) {
	none := func() error { return fmt.Errorf("%w: there is no store in %s", log.ErrUnavailable, c.Store) }
	l, err := log.OpenOn(ctx, memlog.New(memlog.Config{}), log.Config{Logger: o.Logger, Host: log.Host{Room: none}})
	if err != nil {
		return nil, err
	}
	st := o.store(c)
	st.Snapshots, st.Host.ViewsDir = &snapshot.Mem{}, c.Store
	o.bring(&st, false)
	uses(&st, l, noLimits, nil)
	return tally.Open(ctx, l, st)
}

func (o Options) store(c config.Config) tally.Config {
	kinds := maps.Clone(o.Kinds)
	if kinds == nil {
		kinds = make(map[string]tally.Kind, 1)
	}
	kinds[events.KindType] = tally.Kind{Validate: registry.Validate}
	return tally.Config{Namespace: c.Namespace, Base: c.Base, Source: o.Source, Actor: o.Actor, Logger: o.Logger, Host: tally.Host{Policy: o.Policy}, Kinds: kinds}
}

// openMemory opens a store in memory.
func openMemory(ctx context.Context, o Options, c config.Config) (*tally.Store, error) {
	ts, err := o.trees(c, "")
	if err != nil {
		return nil, err
	}
	meter, gate := quota.New("", 0), registry.NewGate()
	l, err := log.OpenOn(ctx, memlog.New(memlog.Config{}), log.Config{Logger: o.Logger, MinDurability: c.MinDurability, Host: log.Host{Admit: both(gate.Admit, meter.Admit)}})
	if err != nil {
		return nil, err
	}
	meter.Watch(l)
	gate.Watch(l)
	st := o.store(c)
	st.Snapshots, st.Host.Keep, st.Host.Beside = &snapshot.Mem{}, true, o.beside("", ts)
	dir, err := os.MkdirTemp("", "tally-views-")
	if err != nil {
		return nil, fmt.Errorf("embedded: open: %w", errors.Join(err, l.Close()))
	}
	closeViews := o.views(&st, dir)
	o.bring(&st, true)
	st.Host.OnClose = func() error { return errors.Join(closeViews(), os.RemoveAll(dir)) }
	uses(&st, l, meter.Limits, meter)
	ts.Wire(&st)
	st.Host.SetLimit = meter.SetLimit
	s, err := tally.Open(ctx, l, st)
	if err != nil {
		return nil, err
	}
	return register(ctx, s, o)
}

// views makes the store keep its views in a directory. The caller calls close after closing the store.
func (o Options) views(st *tally.Config, dir string) (close func() error) {
	var closes []func() error
	for _, v := range catalog.Views(render.Opening, render.Said) {
		e := v.New(dir, o.Logger)
		closes = append(closes, e.Close)
		if v.Pace == 0 {
			st.Host.Views = append(st.Host.Views, e)
		} else {
			st.Host.PatientViews = append(st.Host.PatientViews, e)
		}
	}
	readFromCatalog(st, dir)
	return func() (err error) {
		for _, end := range closes {
			err = errors.Join(err, end())
		}
		return err
	}
}

// readFromCatalog makes a store answer queries from the catalog in a directory.
func readFromCatalog(st *tally.Config, dir string) {
	st.Host.ViewsDir, st.Host.Lister = dir, documents(dir)
	st.Host.Lacks = func(ctx context.Context, view string, lost []log.Hole) ([]log.Hole, error) {
		known, err := storedir.ReadHoles(dir) // the owner writes the list; this process may be attached
		if err != nil || len(known)+len(lost) == 0 {
			return nil, err
		}
		s, err := catalog.StandingOf(ctx, dir, view)
		if errors.Is(err, catalog.ErrNoView) { // the answer came from the log
			s, err = catalog.Standing{Lacks: true}, nil
		}
		return storedir.MissingFrom(s, append(known, lost...)), err
	}
	st.Host.Catalog = func(ctx context.Context, q projector.SessionQuery) ([]projector.Listed, error) {
		return catalog.Listed(ctx, dir, q)
	}
	st.Host.Queue = func(ctx context.Context, namespace, id string, most int) (*projector.Work, events.Offset, error) {
		r, err := catalog.OpenWork(ctx, dir)
		if err != nil {
			return nil, 0, err
		}
		defer r.Close()
		return r.Queue(ctx, namespace, id, most)
	}
	st.Host.Progress = func(ctx context.Context, q projector.ProgressQuery) ([]projector.Progress, error) {
		return catalog.ProgressIn(ctx, dir, q)
	}
}

// documents returns a function that lists the documents of the catalog in a directory.
func documents(dir string) func(context.Context, projector.DocumentQuery) ([]projector.DocumentListed, string, error) {
	return func(ctx context.Context, q projector.DocumentQuery) ([]projector.DocumentListed, string, error) {
		r, err := catalog.Open(ctx, dir)
		if err != nil {
			return nil, "", err
		}
		defer r.Close()
		return r.Documents(ctx, q)
	}
}

// openLocal becomes the owner of the directory or attaches to the owner. While another process is starting or stopping,
// openLocal tries again.
func openLocal(ctx context.Context, o Options, c config.Config) (*tally.Store, error) {
	if readOnly, is := errors.AsType[*ReadOnlyError](storedir.Writable(c.Store)); is {
		return openReadOnly(ctx, o, c, readOnly)
	}
	deadline := time.Now().Add(cmp.Or(o.Wait, 10*time.Second))
	for {
		st, err := openOwn(ctx, o, c)
		owned, isOwned := errors.AsType[*OwnedError](err)
		if !isOwned {
			return st, err
		}
		if !o.Own {
			st, err = attach(ctx, o, c)
			if noOwner, ok := errors.AsType[*NoOwnerError](err); !ok {
				return st, err
			} else {
				err = noOwner.Err
			}
			if time.Now().After(deadline) {
				owned.Crowded = errors.Is(err, nats.ErrMaxConnectionsExceeded)
				return nil, owned
			}
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func openOwn(ctx context.Context, o Options, c config.Config) (*tally.Store, error) {
	ts, err := o.trees(c, c.Store)
	if err != nil {
		return nil, err
	}
	srv, err := Start(ctx, ServerOptions{Dir: c.Store, Logger: o.Logger, Observer: o.Observer, SegmentBytes: c.Segment, MinDurability: c.MinDurability, Listen: o.Listen, Progress: o.Progress, Private: o.shadow, refused: o.refused, trees: ts,
		unannounced: erasure.Pending(c.Store)})
	if err != nil {
		return nil, err
	}
	eraser := &eraser{s: srv}
	closeServer := srv.Close
	if o.shadow {
		closeServer = func() error { return errors.Join(srv.Close(), os.RemoveAll(c.Store)) }
	}
	st := o.store(c)
	st.Host.Room = cacheRoom(c.Store, Reserve)
	st.Snapshots, st.Host.Keep = newRoomySnapshots(c.Store, st.Host.Room), !o.Still
	st.Host.Cursor, st.Host.Beside = filepath.Join(c.Store, "snapshots", "cursor"), o.beside(c.Store, ts)
	closeViews := o.views(&st, c.Store)
	o.bring(&st, true)
	st.Host.OnClose = func() error { return errors.Join(closeViews(), closeServer()) }
	uses(&st, srv.Log(), srv.meter.Limits, srv.meter)
	st.Host.Shown = func(ctx context.Context, view string, at events.Offset) error { // another process may keep its own
		return catalog.WaitOwn(ctx, c.Store, view, at)
	}
	ts.Wire(&st)
	st.Host.SetLimit = srv.meter.SetLimit
	if o.refused != nil {
		st.Host.SetLimit = func(context.Context, string, int64) error { return o.refused }
	}
	st.Host.Erase = eraser.erase
	s, err := tally.Open(ctx, srv.Log(), st)
	if err != nil {
		return nil, errors.Join(err, srv.Close())
	}
	again := folding{st: s, dir: c.Store, own: st.Host.Own, trees: ts, logger: o.Logger,
		tell: func() error { return srv.conns[1].Publish(erasedNotice, nil) }}
	eraser.fold, eraser.beyond = again.again, again.beyond
	if err := eraser.open(ctx, o); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return register(ctx, s, o)
}

// attach opens a store that another process owns. The owner keeps the snapshots and the views.
func attach(ctx context.Context, o Options, c config.Config) (*tally.Store, error) {
	ts, err := o.trees(c, c.Store)
	if err != nil {
		return nil, err
	}
	a, err := Attach(ctx, ServerOptions{Dir: c.Store, Logger: o.Logger, MinDurability: c.MinDurability})
	if err != nil {
		return nil, err
	}
	st := o.store(c)
	st.Snapshots, st.Host.OnClose = newRoomySnapshots(c.Store, cacheRoom(c.Store, Reserve)), a.Close
	readFromCatalog(&st, c.Store)
	st.Host.Shown = func(ctx context.Context, view string, at events.Offset) error {
		ctx, cancel := a.Log().UntilGone(ctx)
		defer cancel()
		return catalog.Wait(ctx, c.Store, view, at)
	}
	st.Host.Room = cacheRoom(c.Store, Reserve) // for the views of this program
	o.bring(&st, true)
	uses(&st, a.Log(), func() (quota.Limits, error) { return quota.Load(c.Store) }, nil)
	kept := ts.Attached(a.conns[0], a.OwnerPID())
	kept.Join(ctx)
	kept.Wire(&st)
	st.Host.SetLimit = func(_ context.Context, scope string, bytes int64) error { return quota.Set(c.Store, scope, bytes) }
	st.Host.Erase = (&eraseRequester{dir: c.Store, a: a}).erase
	s, err := tally.Open(ctx, a.Log(), st)
	if err != nil {
		return nil, errors.Join(err, a.Close())
	}
	if _, err := a.conns[0].Subscribe(erasedNotice, func(*nats.Msg) {
		_ = s.Loader().Erase(context.WithoutCancel(ctx)) // of no subject: loads under way store nothing, the cache is empty
	}); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return register(ctx, s, o)
}
