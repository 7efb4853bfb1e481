package embedded

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
	"github.com/tallylog/tally/log"
)

// treesDir is the folder of a store for its trees: of each the book, how it was left, and what it
// is like if another process named it.
const treesDir = "trees"

// maxShow bounds how long an append waits for a tree, and a question for an offset.
const maxShow = 30 * time.Second

// treePrefix begins the names of trees in [tally.Store.Wait].
const treePrefix = "tree:"

// trees are those of a store, in the process that keeps them: the owner of the store, or
// [KeepTrees] beside a server that others run.
type trees struct {
	dir    string // of their files; "": the store ends with the process
	store  string // whose folders they are
	config config.Config
	layout func(name string) (layouts.Layout, bool) // nil: none is kept here
	lazy   bool                                     // none is kept before an append or a question needs it
	logger *slog.Logger

	begun   chan struct{}     // closed when begin is set
	begin   func(k *treeKept) // opens a tree and keeps it until the store is closed
	running sync.WaitGroup

	mu    sync.Mutex           // guards what follows
	list  []config.Tree        // grows, and is never changed in place
	kept  map[string]*treeKept // by the name of their files
	ended bool                 // the store is being closed
}

// treesOf returns the trees of a store in a directory, for the process that keeps them.
func (o Options) treesOf(c config.Config, dir string) (*trees, error) {
	ts := &trees{store: dir, config: c, layout: o.Trees, lazy: o.Existing, logger: o.Logger, list: c.Trees, begun: make(chan struct{}), kept: make(map[string]*treeKept)}
	if dir != "" {
		ts.dir = filepath.Join(dir, treesDir)
	}
	if ts.layout == nil || ts.lazy {
		return ts, nil
	}
	for _, t := range c.Trees {
		if _, err := ts.layoutOf(t); err != nil {
			return nil, err
		}
	}
	return ts, nil
}

// layoutOf returns what the files of a tree are like.
func (ts *trees) layoutOf(t config.Tree) (layouts.Layout, error) {
	l, known := ts.layout(t.Layout)
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

// on makes the appends of a store wait for its trees, and lets callers wait for them by name.
func (ts *trees) on(st *tally.Config) {
	if ts.layout == nil {
		return
	}
	st.Host.Shows, st.Host.KeepFiles = ts.shows, ts.keepFiles
	shown := st.Host.Shown
	st.Host.Shown = func(ctx context.Context, view string, at events.Offset) error {
		return waitTree(ctx, view, at, ts.wait, shown)
	}
}

// waitTree waits for a tree if the name of a view means one, and for the view otherwise.
func waitTree(ctx context.Context, view string, at events.Offset, tree, shown func(context.Context, string, events.Offset) error) error {
	name, isTree := strings.CutPrefix(view, treePrefix)
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

// run keeps trees until ctx is done.
func (ts *trees) run(ctx context.Context, st *tally.Store) {
	if ts.layout == nil {
		return
	}
	ts.begin = func(k *treeKept) { ts.hold(ctx, st, k) }
	close(ts.begun)
	if !ts.lazy {
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

// warn logs why a tree is not kept.
func (ts *trees) warn(k *treeKept) {
	ts.running.Go(func() {
		if <-k.ready; k.err != nil {
			ts.logger.Warn("a tree is not kept", "tree", k.Name, "err", k.err)
		}
	})
}

// lingering returns a context that outlives another one for as long as a view may take to catch
// up. A process that ends at once begins to keep its trees nevertheless, so that their files show
// what an earlier keeper left undone.
func lingering(ctx context.Context) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(time.Second, cancel) })
	return longer, func() { stop(); cancel() }
}

// hold opens a tree and keeps it until ctx is done.
func (ts *trees) hold(ctx context.Context, st *tally.Store, k *treeKept) {
	opening, opened := lingering(ctx)
	err := ts.open(opening, st, k)
	opened()
	if err == nil {
		close(k.ready)
		k.run(ctx)
	}
	ts.leave(ctx, k, err)
	if cerr := k.close(); cerr != nil {
		ts.logger.Warn("a tree was not left in order, and is looked through the next time", "tree", k.Name, "err", cerr)
	}
	ts.mu.Lock()
	delete(ts.kept, k.FileName())
	ts.mu.Unlock()
	if err != nil {
		k.err = err
		close(k.ready)
	}
}

// leave writes down how a tree is when nobody keeps it any more, or why it could not be opened.
func (ts *trees) leave(ctx context.Context, k *treeKept, reason error) {
	s := statusOfTree(k.Tree)
	if k.tree != nil {
		s = k.status(context.WithoutCancel(ctx))
	}
	if s.PID = 0; reason != nil {
		s.Error = reason.Error()
	}
	_ = writeLeft(ts.dir, k.FileName(), s) // a disk that is full says so elsewhere
}

// all are the trees of the store.
func (ts *trees) all() []config.Tree {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return ts.list
}

// add makes a tree one of the store's.
func (ts *trees) add(t config.Tree) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if !slices.ContainsFunc(ts.list, func(have config.Tree) bool { return have.FileName() == t.FileName() }) {
		ts.list = append(slices.Clone(ts.list), t)
	}
}

// start begins to keep a tree, unless it is kept. It does not wait until the tree is open.
func (ts *trees) start(t config.Tree) *treeKept {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if k := ts.kept[t.FileName()]; k != nil {
		return k
	}
	k := &treeKept{Tree: t, logger: ts.logger, anew: make(chan treeAnew), ready: make(chan struct{}), ended: make(chan struct{})}
	if ts.ended {
		k.err = errTreesEnd
		close(k.ready)
		return k
	}
	ts.kept[t.FileName()] = k
	ts.running.Go(func() { ts.begin(k) })
	return k
}

var errTreesEnd = fmt.Errorf("%w: the store is being closed", log.ErrUnavailable)

// keep returns a tree once it is open. A tree that is not kept yet is kept from here on.
func (ts *trees) keep(ctx context.Context, t config.Tree) (*treeKept, error) {
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

// now returns a tree that is open already, nil if it is not.
func (ts *trees) now(t config.Tree) *treeKept {
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

// folder is the tree of a layout in a folder that a program names.
func (ts *trees) folder(namespace, layout, dir string) (t config.Tree, err error) {
	if _, known := ts.layout(layout); !known {
		return t, fmt.Errorf("%s: layout %q: %w", dir, layout, tally.ErrNoTrees)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return t, err
	}
	c := ts.config
	c.Trees = ts.all()
	return c.TreeIn(namespace, layout, dir)
}

// keepFiles is [tally.Host.KeepFiles] of the keeper.
func (ts *trees) keepFiles(ctx context.Context, namespace, layout, dir string) error {
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

// matches reports whether a tree of a namespace may show one of subjects. An event that refers to
// a blob is appended behind it.
func matches(namespace string, subs []events.Subject) bool {
	return slices.ContainsFunc(subs, func(sub events.Subject) bool {
		return sub.Namespace == namespace && sub.Kind != events.KindBlob && sub.Kind != events.KindUnit
	})
}

// waitsForTrees is show; a variable for tests.
var waitsForTrees = (*trees).show

// shows is [tally.Host.Shows].
func (ts *trees) shows(ctx context.Context, at events.Offset, subs ...events.Subject) error {
	if ts.layout == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, maxShow)
	defer cancel()
	return waitsForTrees(ts, ctx, at, subs...)
}

// show waits for each tree in mode sync that may show one of subjects.
func (ts *trees) show(ctx context.Context, at events.Offset, subs ...events.Subject) error {
	for _, t := range ts.all() {
		if !t.Sync || !matches(t.Namespace, subs) {
			continue
		}
		k, err := ts.keep(ctx, t)
		if err != nil {
			return &tally.TreeError{Tree: t.Name, Err: err}
		}
		if err := k.shows(ctx, at, subs); err != nil {
			return err
		}
	}
	return nil
}

// wait returns when a tree shows the record at an offset.
func (ts *trees) wait(ctx context.Context, name string, at events.Offset) error {
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
