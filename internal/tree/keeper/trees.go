// Package keeper keeps the trees of a store: sessions and documents as files, which follow the log and whose edits are
// appended to it. One process keeps a tree: the owner of the store, or [Keep] beside a server that others run. Other
// processes of the same user reach it with [Ask], over NATS.
package keeper

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/tree"
	"github.com/tallylog/tally/log"
)

// folderName names the store's folder for its trees. The folder has three files for a tree: the manifest, the last
// status, and the settings if another process named the tree.
const folderName = "trees"

// maxShow bounds how long an append waits for the trees, and how long one question waits for an offset.
const maxShow = 30 * time.Second

// viewPrefix begins the name of a tree as a view, in [tally.Store.Wait].
const viewPrefix = "tree:"

// Trees keeps the trees of a store in this process.
type Trees struct {
	Config
	dir   string // of the trees' own files; "": the store ends with the process
	store string // the store's directory, which claims the trees' folders

	begun   chan struct{}     // closed when begin is set
	begin   func(k *keptTree) // opens a tree and keeps it until the store is closed
	running sync.WaitGroup

	mu    sync.Mutex           // guards the fields below
	list  []config.Tree        // replaced when it grows, never changed in place
	kept  map[string]*keptTree // by the name of the tree's files
	ended bool                 // the store is being closed
}

// Config has the settings of Trees.
type Config struct {
	Store  config.Config                            // lists the trees
	Layout func(name string) (layouts.Layout, bool) // finds layouts by name; nil: this process keeps no trees
	Lazy   bool                                     // keep a tree from the first append or question that needs it
	Logger *slog.Logger
}

// New returns the trees of the store in a directory. "" means a store in memory, whose trees remember nothing. If a
// layout is unknown, the error is a *config.Error. No tree is kept before [Trees.Run].
func New(c Config, dir string) (*Trees, error) {
	ts := &Trees{Config: c, store: dir, list: c.Store.Trees, begun: make(chan struct{}), kept: make(map[string]*keptTree)}
	if dir != "" {
		ts.dir = filepath.Join(dir, folderName)
	}
	if ts.Layout == nil || ts.Lazy {
		return ts, nil
	}
	for _, t := range ts.list {
		if _, err := ts.layoutOf(t); err != nil {
			return nil, err
		}
	}
	return ts, nil
}

// layoutOf returns the layout of a tree's files, restricted to the tree's kinds and layer.
func (ts *Trees) layoutOf(t config.Tree) (layouts.Layout, error) {
	l, known := ts.Layout(t.Layout)
	if !known {
		return nil, t.Wrong("layout", "%q: there is no such layout, or none whose files follow what happens", t.Layout)
	}
	s, is := l.(layouts.Selector)
	switch {
	case is:
		part, err := s.Select(t.Kinds, t.Layer)
		if wrong, ok := errors.AsType[*events.InvalidError](err); ok {
			err = t.Wrong(wrong.Field, "%s", wrong.Reason)
		}
		return part, err
	case len(t.Kinds) > 0:
		return nil, t.Wrong("kinds", "layout %s has all of its kinds", t.Layout)
	case t.Layer != "":
		return nil, t.Wrong("layer", "layout %s knows no layers", t.Layout)
	}
	return l, nil
}

// Wire makes the appends of a store wait for its trees, and lets callers wait for trees by name.
func (ts *Trees) Wire(st *tally.Config) {
	if ts.Layout == nil {
		return
	}
	st.Host.Shows, st.Host.KeepFiles = ts.Shows, ts.keepFiles
	shown := st.Host.Shown
	st.Host.Shown = func(ctx context.Context, view string, at events.Offset) error {
		return waitFor(ctx, view, at, ts.wait, shown)
	}
}

// waitFor waits for a tree if the view's name begins with viewPrefix, and for the view otherwise.
func waitFor(ctx context.Context, view string, at events.Offset, tree, shown func(context.Context, string, events.Offset) error) error {
	name, isTree := strings.CutPrefix(view, viewPrefix)
	switch {
	case isTree:
		if err := tree(ctx, name, at); err != nil {
			return fmt.Errorf("tree %s: %w", name, err)
		}
		return nil
	case shown == nil:
		return fmt.Errorf("view %s: %w", view, tally.ErrNotFound)
	}
	return shown(ctx, view, at)
}

// Run keeps the trees until ctx is done, and returns when all of them are closed.
func (ts *Trees) Run(ctx context.Context, st *tally.Store) {
	if ts.Layout == nil {
		return
	}
	ts.begin = func(k *keptTree) { ts.hold(ctx, st, k) }
	close(ts.begun)
	if !ts.Lazy {
		for _, t := range ts.all() {
			ts.warn(ts.start(t))
		}
	}
	<-ctx.Done()
	ts.mu.Lock()
	ts.ended = true
	ts.mu.Unlock()
	ts.running.Wait()
}

// warn logs the error if a tree cannot be opened.
func (ts *Trees) warn(k *keptTree) {
	ts.running.Go(func() {
		if <-k.ready; k.err != nil {
			ts.Logger.Warn("a tree is not kept", "tree", k.Name, "err", k.err)
		}
	})
}

// lingering returns a context that outlives ctx by the time that a view has to catch up. So even a process that ends at
// once opens its trees, and finishes the work of an earlier keeper.
func lingering(ctx context.Context) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(time.Second, cancel) })
	return longer, func() { stop(); cancel() }
}

// hold opens a tree and keeps it until ctx is done.
func (ts *Trees) hold(ctx context.Context, st *tally.Store, k *keptTree) {
	k.left = readLeft(ts.dir, k.Tree)
	opening, opened := lingering(ctx)
	err := ts.open(opening, st, k)
	opened()
	if err == nil {
		close(k.ready)
		k.run(ctx)
	}
	ts.leave(ctx, k, err)
	if cerr := k.close(); cerr != nil {
		ts.Logger.Warn("a tree was not left in order, and is looked through the next time", "tree", k.Name, "err", cerr)
	}
	ts.mu.Lock()
	delete(ts.kept, k.FileName())
	ts.mu.Unlock()
	if err != nil {
		k.err = err
		close(k.ready)
	}
}

// leave writes the status of a tree that this process stops keeping. reason says why the tree could not be opened.
func (ts *Trees) leave(ctx context.Context, k *keptTree, reason error) {
	s := statusOf(k.Tree)
	if k.tree != nil {
		s = k.status(context.WithoutCancel(ctx))
	} else {
		s.recall(k.left, tree.Status{}, func(string) bool { return false })
	}
	if s.PID = 0; reason != nil {
		s.Error = reason.Error()
	}
	if err := writeLeft(ts.dir, k.FileName(), s); err != nil {
		ts.Logger.Warn("the status of a tree is not stored", "tree", k.Name, "err", err)
	}
}

// all returns the store's trees. The caller may not change the slice.
func (ts *Trees) all() []config.Tree {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return ts.list
}

// add adds a tree to the store's, unless it is there already.
func (ts *Trees) add(t config.Tree) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if !slices.ContainsFunc(ts.list, func(have config.Tree) bool { return have.FileName() == t.FileName() }) {
		ts.list = append(slices.Clone(ts.list), t)
	}
}

// start opens a tree in the background, unless it is open or opening. The tree's ready channel says when it is open.
func (ts *Trees) start(t config.Tree) *keptTree {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if k := ts.kept[t.FileName()]; k != nil {
		return k
	}
	k := &keptTree{Tree: t, logger: ts.Logger, restarts: make(chan restart), ready: make(chan struct{}), ended: make(chan struct{})}
	if ts.ended {
		k.err = errClosing
		close(k.ready)
		return k
	}
	ts.kept[t.FileName()] = k
	ts.running.Go(func() { ts.begin(k) })
	return k
}

var errClosing = fmt.Errorf("%w: the store is being closed", log.ErrUnavailable)

// keep returns a tree once it is open. If the tree is not kept yet, keep starts it.
func (ts *Trees) keep(ctx context.Context, t config.Tree) (*keptTree, error) {
	select {
	case <-ts.begun:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	k := ts.start(t)
	select {
	case <-k.ready:
		return k, k.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// now returns a tree that this process keeps already, or nil. It waits for a tree that is being opened.
func (ts *Trees) now(t config.Tree) *keptTree {
	ts.mu.Lock()
	k := ts.kept[t.FileName()]
	ts.mu.Unlock()
	if k == nil {
		return nil
	}
	if <-k.ready; k.err != nil {
		return nil
	}
	return k
}

// folder returns the settings of a tree in a folder that a program names.
func (ts *Trees) folder(namespace, layout, dir string) (t config.Tree, err error) {
	if _, known := ts.Layout(layout); !known {
		return t, fmt.Errorf("%s: layout %q: %w", dir, layout, tally.ErrNoTrees)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return t, err
	}
	c := ts.Config.Store
	c.Trees = ts.all()
	return c.TreeIn(namespace, layout, dir)
}

// keepFiles implements [tally.Host.KeepFiles] for the process that keeps the trees.
func (ts *Trees) keepFiles(ctx context.Context, namespace, layout, dir string) error {
	t, err := ts.folder(namespace, layout, dir)
	if err != nil {
		return err
	}
	k, err := ts.keep(ctx, t)
	if err == nil {
		ts.add(t)
		err = k.meet(ctx)
	}
	if err != nil {
		return fmt.Errorf("tree %s: %w", t.Name, err)
	}
	return nil
}

// matches reports whether a tree of a namespace may show one of the subjects. Blobs are left out: an event that refers
// to the blob follows, and the tree shows that event.
func matches(namespace string, subs []events.Subject) bool {
	return slices.ContainsFunc(subs, func(sub events.Subject) bool {
		return sub.Namespace == namespace && sub.Kind != events.KindBlob && sub.Kind != events.KindUnit
	})
}

// WaitForTrees waits for each tree in mode sync that may show one of the subjects. It is a variable for tests.
var WaitForTrees = (*Trees).show

// Shows implements [tally.Host.Shows].
func (ts *Trees) Shows(ctx context.Context, at events.Offset, subs ...events.Subject) error {
	if ts.Layout == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, maxShow)
	defer cancel()
	return WaitForTrees(ts, ctx, at, subs...)
}

func (ts *Trees) show(ctx context.Context, at events.Offset, subs ...events.Subject) error {
	for _, t := range ts.all() {
		if !t.Sync || !matches(t.Namespace, subs) {
			continue
		}
		k, err := ts.keep(ctx, t)
		if err != nil {
			return &events.TreeError{Tree: t.Name, Err: err}
		}
		if err := k.shows(ctx, at, subs); err != nil {
			return err
		}
	}
	return nil
}

// wait returns when the named tree shows the record at an offset.
func (ts *Trees) wait(ctx context.Context, name string, at events.Offset) error {
	list := ts.all()
	i := slices.IndexFunc(list, func(t config.Tree) bool { return t.Name == name })
	if i < 0 {
		return tally.ErrNotFound
	}
	k, err := ts.keep(ctx, list[i])
	if err != nil {
		return err
	}
	return k.wait(ctx, at)
}

// Unreached lists, one line each, what an erasure of subjects leaves beside the files of the trees.
func (ts *Trees) Unreached(ctx context.Context, subs []events.Subject) (lines []string) {
	if ts.Layout == nil {
		return nil
	}
	for _, t := range ts.all() {
		if !matches(t.Namespace, subs) {
			continue
		}
		var list []string
		k, err := ts.keep(ctx, t)
		if err == nil {
			list, err = k.tree.Unreached(ctx, subs)
		}
		if err != nil {
			list = []string{fmt.Sprintf("its conflicts and displaced files are not known: %v", err)}
		}
		for _, line := range list {
			lines = append(lines, fmt.Sprintf("tree %s: %s", t.Name, line))
		}
	}
	return lines
}

// Refold writes the files of subjects again, because records of them were erased. The caller names the forks of the
// subjects too. The error names each tree that may still show erased content.
func (ts *Trees) Refold(ctx context.Context, subs []events.Subject) (err error) {
	if ts.Layout == nil {
		return nil
	}
	for _, t := range ts.all() {
		var own []events.Subject
		for _, sub := range subs {
			if matches(t.Namespace, []events.Subject{sub}) {
				own = append(own, sub)
			}
		}
		if len(own) == 0 {
			continue
		}
		k, failed := ts.keep(ctx, t)
		if failed == nil {
			failed = k.restart(ctx, restart{erased: own})
		}
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("tree %s: its files may have erased content: %w", t.Name, failed))
		}
	}
	return err
}
