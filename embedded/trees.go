package embedded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/disk/lockfile"
	"github.com/tallylog/tally/internal/formats"
	"github.com/tallylog/tally/log"
)

// treesDir is the folder of a store with what belongs to its trees: of each its book, a lock,
// and a file that says who keeps it.
const treesDir = "trees"

// longestShow bounds how long an append waits for a tree.
const longestShow = 30 * time.Second

// handover is how often a tree is looked at that somebody begins to keep, or is about to leave.
const handover = 5 * time.Millisecond

// treePrefix is what the views of trees are called by, in [tally.Store.Wait].
const treePrefix = "tree:"

// trees are those of a store, as a process has to do with them: it keeps the ones that its
// configuration names and nobody else keeps, and waits for all that are in mode sync.
type trees struct {
	dir    string // of their files; "": the store ends with the process
	store  string // whose folders they are
	config config.Config
	layout func(name string) (formats.Live, bool) // nil: none is kept here
	logger *slog.Logger

	begun  chan struct{}        // closed when each of list was tried
	asked  chan *treeAdoption   // to be tried again
	ended  chan struct{}        // closed when none is kept any more
	mu     sync.Mutex           // guards what follows
	list   []config.Tree        // which only grows
	kept   map[string]*treeKept // by name
	reason map[string]error     // why one is not
}

type treeAdoption struct {
	tree config.Tree
	done chan error
}

// treesOf returns what a process has to do with the trees of a store in a directory.
func (o Options) treesOf(c config.Config, dir string) (*trees, error) {
	ts := &trees{store: dir, config: c, layout: o.Trees, logger: o.Logger, begun: make(chan struct{}), asked: make(chan *treeAdoption), ended: make(chan struct{}),
		kept: make(map[string]*treeKept), reason: make(map[string]error)}
	if dir != "" {
		ts.dir = filepath.Join(dir, treesDir)
	}
	if ts.layout == nil {
		close(ts.begun)
		close(ts.ended)
		return ts, nil
	}
	ts.list = c.Trees
	for _, t := range c.Trees {
		if _, err := ts.layoutOf(t); err != nil {
			return nil, err
		}
	}
	return ts, nil
}

// layoutOf returns what the files of a tree are like.
func (ts *trees) layoutOf(t config.Tree) (formats.Live, error) {
	l, known := ts.layout(t.Layout)
	if !known {
		return nil, t.Wrong("layout", "%q: there is no such layout, or none whose files follow what happens", t.Layout)
	}
	s, is := l.(formats.Selector)
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

// on has a store wait for its trees.
func (ts *trees) on(st *tally.Config) {
	shown := st.Host.Shown
	st.Host.Shows = func(ctx context.Context, at events.Offset, subs ...events.Subject) error {
		return waitsForTrees(ts, ctx, at, subs...)
	}
	if ts.layout != nil {
		st.Host.KeepFiles = ts.keep
	}
	st.Host.Shown = func(ctx context.Context, view string, at events.Offset) error {
		name, isTree := strings.CutPrefix(view, treePrefix)
		switch {
		case isTree:
			return ts.wait(ctx, name, at)
		case shown == nil:
			return fmt.Errorf("view %s: %w", view, tally.ErrNotFound)
		}
		return shown(ctx, view, at)
	}
}

// run keeps trees until ctx is done.
func (ts *trees) run(ctx context.Context, st *tally.Store) {
	if ts.layout == nil {
		return
	}
	defer close(ts.ended)
	var running sync.WaitGroup
	desk := newTreeDesk(ts)
	defer desk.close()
	opening, opened := lingering(ctx)
	for _, t := range ts.all() {
		if err := ts.begin(ctx, opening, &running, desk, st, t); err != nil && !errors.Is(err, lockfile.ErrLocked) {
			ts.logger.Warn("a tree is not kept here", "tree", t.Name, "err", err)
		}
	}
	opened()
	close(ts.begun)
	for {
		select {
		case a := <-ts.asked:
			a.done <- ts.begin(ctx, ctx, &running, desk, st, a.tree)
		case <-ctx.Done():
			running.Wait()
			return
		}
	}
}

// lingering returns a context that outlives another one for as long as a view may take to catch
// up. A process that ends at once begins to keep its trees nevertheless, so that their files show
// what an earlier keeper left undone.
func lingering(ctx context.Context) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(time.Second, cancel) })
	return longer, func() { stop(); cancel() }
}

// all are the trees that this process is to keep.
func (ts *trees) all() []config.Tree {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return ts.list
}

// keep is [tally.Host.KeepFiles].
func (ts *trees) keep(ctx context.Context, namespace, layout, dir string) error {
	if _, known := ts.layout(layout); !known {
		return fmt.Errorf("%s: layout %q: %w", dir, layout, tally.ErrNoTrees)
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if err := ts.await(ctx); err != nil {
		return err
	}
	c := ts.config
	c.Trees = ts.all()
	t, err := c.TreeIn(namespace, layout, dir)
	if err != nil {
		return err
	}
	if err := ts.adopt(ctx, t); err != nil && !errors.Is(err, lockfile.ErrLocked) {
		return fmt.Errorf("tree %s: %w", t.Name, err)
	}
	ts.add(t)
	if k := ts.keeper(t.Name); k != nil {
		err = k.meet(ctx)
	} else {
		var f treeFile // another process keeps it
		if f, err = treeFileIn(ts.dir, t.FileName()); err == nil {
			_, err = f.ask(ctx, TreePull, TreeAsk{})
		}
	}
	if err != nil {
		return fmt.Errorf("tree %s: %w", t.Name, err)
	}
	return nil
}

// add has a tree be among those that this process is to keep.
func (ts *trees) add(t config.Tree) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if !slices.ContainsFunc(ts.list, func(have config.Tree) bool { return have.Name == t.Name }) {
		ts.list = append(slices.Clone(ts.list), t)
	}
}

// adopt keeps a tree that nobody keeps any more.
func (ts *trees) adopt(ctx context.Context, t config.Tree) error {
	a := &treeAdoption{t, make(chan error, 1)}
	select {
	case ts.asked <- a:
		return <-a.done
	case <-ts.ended:
		return fmt.Errorf("%w: the store is being closed", log.ErrUnavailable)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// begin begins to keep a tree, unless that is done. The tree is kept until ctx is done; opening
// bounds how long it is opened.
func (ts *trees) begin(ctx, opening context.Context, running *sync.WaitGroup, desk *treeDesk, st *tally.Store, t config.Tree) error {
	if ts.keeper(t.Name) != nil {
		return nil
	}
	k := &treeKept{Tree: t, dir: ts.dir, logger: ts.logger, anew: make(chan treeAnew), ready: make(chan struct{}), ended: make(chan struct{})}
	err := ts.take(k, desk)
	if err == nil {
		ts.mu.Lock()
		ts.kept[t.Name] = k // others ask from here on, and wait until it is open
		ts.mu.Unlock()
		if err = ts.open(opening, st, k); err != nil {
			ts.leave(ctx, k, err)
		}
		close(k.ready)
	}
	ts.mu.Lock()
	ts.reason[t.Name] = err
	ts.mu.Unlock()
	if err != nil {
		return errors.Join(err, k.close())
	}
	running.Go(func() {
		k.run(ctx)
		ts.leave(ctx, k, nil)
		if err := k.close(); err != nil {
			ts.logger.Warn("a tree was not left in order, and is looked through the next time", "tree", t.Name, "err", err)
		}
	})
	return nil
}

// take takes the lock of a tree, and says that it is kept here.
func (ts *trees) take(k *treeKept, desk *treeDesk) error {
	if ts.dir == "" {
		return nil
	}
	if err := os.MkdirAll(ts.dir, 0o700); err != nil {
		return err
	}
	if err := k.lock(filepath.Join(ts.dir, k.FileName()+".lock")); err != nil {
		return err
	}
	if err := desk.open(); err != nil {
		return err
	}
	return k.say(desk, statusOfTree(k.Tree))
}

// leave says that a tree is kept here no more, and why, if it could not be. Who asks for it
// looks who keeps it now.
func (ts *trees) leave(ctx context.Context, k *treeKept, reason error) {
	ts.mu.Lock()
	delete(ts.kept, k.Name)
	ts.mu.Unlock()
	if ts.dir == "" {
		return
	}
	s := statusOfTree(k.Tree)
	if k.tree != nil {
		s = k.status(context.WithoutCancel(ctx))
	}
	if s.PID = 0; reason != nil {
		s.Error = reason.Error()
	}
	_ = k.say(nil, s) // a disk that is full says so elsewhere
}

// keeper returns a tree that is kept here, once it is open; nil: it is not.
func (ts *trees) keeper(name string) *treeKept {
	ts.mu.Lock()
	k := ts.kept[name]
	ts.mu.Unlock()
	return k.opened()
}

// matches reports whether a tree of a namespace may show one of subjects.
func matches(namespace string, subs []events.Subject) bool {
	return slices.ContainsFunc(subs, func(sub events.Subject) bool { return sub.Namespace == namespace })
}

// waitsForTrees is show; a variable for tests.
var waitsForTrees = (*trees).show

// show is [tally.Host.Shows].
func (ts *trees) show(ctx context.Context, at events.Offset, subs ...events.Subject) error {
	ctx, cancel := context.WithTimeout(ctx, longestShow)
	defer cancel()
	name, err := "", ts.await(ctx)
	if err == nil {
		name, err = ts.settle(ctx, func() (string, error) { return ts.showAll(ctx, at, subs) })
	}
	if _, ok := errors.AsType[*tally.TreeError](err); ok || err == nil {
		return err
	}
	return &tally.TreeError{Tree: name, Err: err}
}

// settle tries again as long as somebody begins to keep a tree, or is about to leave it.
func (ts *trees) settle(ctx context.Context, try func() (string, error)) (name string, err error) {
	for {
		if name, err = try(); !errors.Is(err, lockfile.ErrLocked) {
			return name, err
		}
		select {
		case <-time.After(handover):
		case <-ctx.Done():
			return name, ctx.Err()
		}
	}
}

// showAll waits for each tree that may show one of subjects. An error is that of the tree named.
func (ts *trees) showAll(ctx context.Context, at events.Offset, subs []events.Subject) (name string, err error) {
	seen := make(map[string]bool) // by the names of their files
	for _, f := range treeFiles(ts.dir) {
		if f.PID == 0 || !f.Tree.Sync || !matches(f.Tree.Namespace, subs) || ts.named(f.name) != nil {
			continue
		}
		err := f.shows(ctx, at, subs)
		if _, gone := errors.AsType[*treeGoneError](err); gone {
			continue // it has ended, or was killed
		}
		if seen[f.name] = true; err != nil {
			return f.Tree.Name, err
		}
	}
	for _, t := range ts.all() {
		if !t.Sync || seen[t.FileName()] || !matches(t.Namespace, subs) {
			continue
		}
		if err := ts.showOwn(ctx, t, at, subs); err != nil {
			return t.Name, err
		}
	}
	return "", nil
}

// showOwn waits for a tree that this process is to keep, unless somebody does.
func (ts *trees) showOwn(ctx context.Context, t config.Tree, at events.Offset, subs []events.Subject) error {
	k := ts.keeper(t.Name)
	if k == nil {
		if err := ts.adopt(ctx, t); err != nil {
			return err
		}
		if k = ts.keeper(t.Name); k == nil {
			return log.ErrUnavailable
		}
	}
	return k.shows(ctx, at, subs)
}

// await returns when each tree that is to be kept here was begun.
func (ts *trees) await(ctx context.Context) error {
	select {
	case <-ts.begun:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// wait returns when a tree shows the record at an offset, here or elsewhere.
func (ts *trees) wait(ctx context.Context, name string, at events.Offset) error {
	if err := ts.await(ctx); err != nil {
		return err
	}
	list := ts.all()
	_, err := ts.settle(ctx, func() (string, error) {
		if k := ts.keeper(name); k != nil {
			return name, k.runner.Wait(ctx, at)
		}
		own := slices.IndexFunc(list, func(t config.Tree) bool { return t.Name == name })
		for _, f := range treeFiles(ts.dir) {
			if f.PID != 0 && f.Tree.Name == name && (own < 0 || f.name == list[own].FileName()) {
				return name, f.shows(ctx, at, nil)
			}
		}
		ts.mu.Lock()
		defer ts.mu.Unlock()
		return name, cmp.Or(ts.reason[name], tally.ErrNotFound)
	})
	if err != nil {
		err = fmt.Errorf("tree %s: %w", name, err)
	}
	return err
}

// KeepTrees keeps trees of a store until ctx is done, beside whoever else uses it. dir is that
// of the store, or, if somebody else serves it elsewhere, of its views. A tree that another
// process keeps is an error that says so.
func KeepTrees(ctx context.Context, st *tally.Store, dir string, list []config.Tree, layout func(string) (formats.Live, bool), lg *slog.Logger) error {
	ts, err := Options{Trees: layout, Logger: lg}.treesOf(config.Config{Trees: list}, dir)
	if err != nil {
		return err
	}
	life, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		ts.run(life, st)
	}()
	<-ts.begun
	ts.mu.Lock()
	for _, t := range list {
		if rerr := ts.reason[t.Name]; rerr != nil {
			if errors.Is(rerr, lockfile.ErrLocked) {
				f, _ := treeFileIn(ts.dir, t.FileName())
				rerr = fmt.Errorf("process %d keeps it already", f.PID)
			}
			err = errors.Join(err, fmt.Errorf("tree %s: %w", t.Name, rerr))
		}
	}
	ts.mu.Unlock()
	if err != nil {
		stop()
	}
	<-done
	return err
}
