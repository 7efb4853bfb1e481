package embedded

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/formats"
	"github.com/tallylog/tally/formats/bucket"
	"github.com/tallylog/tally/formats/redis"
	"github.com/tallylog/tally/formats/s2"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/durable"
	"github.com/tallylog/tally/internal/lockfile"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/tree"
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

// TreeHeldError says that a folder shows another store.
type TreeHeldError struct {
	Place string
	Store string // "": it is not known which
	File  string // that says so, and can be removed if that store shall not have it any more
}

func (e *TreeHeldError) Error() string {
	return fmt.Sprintf("%s shows the store %s, as %s says: remove that file if it no longer does", e.Place, cmp.Or(e.Store, "of another process"), e.File)
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
		if _, known := ts.layout(t.Layout); !known {
			return nil, t.Wrong("layout", "%q: there is no such layout, or none whose files follow what happens", t.Layout)
		}
	}
	return ts, nil
}

// on has a store wait for its trees.
func (ts *trees) on(st *tally.Config) {
	shown := st.Shown
	st.Shows = ts.show
	if ts.layout != nil {
		st.KeepFiles = ts.keep
	}
	st.Shown = func(ctx context.Context, view string, at events.Offset) error {
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
	for _, t := range ts.all() {
		if err := ts.begin(ctx, &running, desk, st, t); err != nil && !errors.Is(err, lockfile.ErrLocked) {
			ts.logger.Warn("a tree is not kept here", "tree", t.Name, "err", err)
		}
	}
	close(ts.begun)
	for {
		select {
		case a := <-ts.asked:
			a.done <- ts.begin(ctx, &running, desk, st, a.tree)
		case <-ctx.Done():
			running.Wait()
			return
		}
	}
}

// all are the trees that this process is to keep.
func (ts *trees) all() []config.Tree {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return ts.list
}

// keep is [tally.Config.KeepFiles].
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

// mostAccepts bounds how often what is met is taken in: somebody may write to it meanwhile.
const mostAccepts = 5

// meet takes in what the files have. Those that are there before the tree remembers anything are
// as many as they are: who names the folder asks for them.
func (k *treeKept) meet(ctx context.Context) error {
	met, accepted := k.tree.Status().Met, 0
	err := k.caughtUp(ctx)
	for err == nil {
		err = k.tree.Pull(ctx)
		if _, asks := errors.AsType[*tree.BulkError](err); !asks || met || accepted == mostAccepts {
			break
		}
		accepted++
		err = k.decide(ctx, true)
	}
	if err != nil {
		return err
	}
	return k.caughtUp(ctx)
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

// begin begins to keep a tree, unless that is done.
func (ts *trees) begin(ctx context.Context, running *sync.WaitGroup, desk *treeDesk, st *tally.Store, t config.Tree) error {
	if ts.keeper(t.Name) != nil {
		return nil
	}
	k := &treeKept{Tree: t, dir: ts.dir, logger: ts.logger, anew: make(chan treeAnew), ready: make(chan struct{}), ended: make(chan struct{})}
	err := ts.take(k, desk)
	if err == nil {
		ts.mu.Lock()
		ts.kept[t.Name] = k // others ask from here on, and wait until it is open
		ts.mu.Unlock()
		if err = ts.open(ctx, st, k); err != nil {
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

// opened returns the tree once it is open, nil if there is none.
func (k *treeKept) opened() *treeKept {
	if k == nil {
		return nil
	}
	if <-k.ready; k.tree == nil {
		return nil
	}
	return k
}

// open opens a tree whose lock is taken.
func (ts *trees) open(ctx context.Context, st *tally.Store, k *treeKept) error {
	if err := k.claim(config.StateFolder(os.Getenv), ts.store); err != nil {
		return err
	}
	layout, _ := ts.layout(k.Layout) // which was looked for
	storage, end, err := openStorage(ctx, k.Tree)
	if err != nil {
		return err
	}
	k.ends = append(k.ends, end)
	of, err := st.Unshown().In(k.Namespace)
	if err != nil {
		return err
	}
	sum := sha256.Sum256([]byte(k.Place()))
	root := formats.Root{Name: formats.LiveRoot, Marker: hex.EncodeToString(sum[:8])}
	if r, one := layout.(formats.Rooted); one {
		root.Name = r.Root()
	}
	c := tree.Config{Name: k.Name, Layout: layout, Root: root, Storage: storage, Target: of, Head: st.Log.Durable,
		Way: tree.Way(k.Way), BulkLimit: k.BulkLimit, Ignore: k.Ignore, MaxFile: k.MaxFile, Logger: ts.logger}
	if ts.dir != "" {
		c.Book = filepath.Join(ts.dir, k.FileName()+".db")
	}
	t, err := tree.New(c)
	if err != nil {
		return err
	}
	k.tree, k.ends = t, append(k.ends, t.Close)
	k.runner = &projector.Runner{Log: st.Log, View: t, Room: t.Room, Logger: ts.logger, MaxValue: st.MaxValue()}
	return nil
}

// openStorage opens where the files of a tree are.
func openStorage(ctx context.Context, t config.Tree) (formats.Storage, func() error, error) {
	switch t.Target {
	case config.TreeDir:
		d, err := formats.OpenDir(t.Dir)
		if err != nil {
			return nil, nil, err
		}
		d.Durable = t.Sync // what is acknowledged is in the files after a power cut, too
		return d, d.Close, nil
	case config.TreeRedis:
		r, err := redis.Open(ctx, redis.Config{URL: t.Redis.URL, Prefix: t.Redis.Prefix})
		if err != nil {
			return nil, nil, err
		}
		return r, r.Close, nil
	case config.TreeBucket:
		nc, err := connect(config.Server{URL: t.Bucket.URL}, "tally tree")
		if err != nil {
			return nil, nil, err
		}
		b, err := openBucket(ctx, nc, t.Bucket.Name)
		if err != nil {
			nc.Close()
			return nil, nil, err
		}
		return b, func() error { nc.Close(); return nil }, nil
	}
	return s2.New(s2.Config{Basin: t.S2.Name, Token: t.S2.Token, Prefix: t.S2.Prefix, Endpoint: t.S2.URL}), func() error { return nil }, nil
}

func openBucket(ctx context.Context, nc *nats.Conn, name string) (formats.Storage, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	return bucket.Open(ctx, js, name)
}

// matches reports whether a tree of a namespace may show one of subjects.
func matches(namespace string, subs []events.Subject) bool {
	return slices.ContainsFunc(subs, func(sub events.Subject) bool { return sub.Namespace == namespace })
}

// show is [tally.Config.Shows].
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
	_, err := ts.settle(ctx, func() (string, error) {
		if k := ts.keeper(name); k != nil {
			return name, k.runner.Wait(ctx, at)
		}
		own := slices.IndexFunc(ts.list, func(t config.Tree) bool { return t.Name == name })
		for _, f := range treeFiles(ts.dir) {
			if f.PID != 0 && f.Tree.Name == name && (own < 0 || f.name == ts.list[own].FileName()) {
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

// treeKept is a tree that this process keeps.
type treeKept struct {
	config.Tree
	dir    string
	logger *slog.Logger
	tree   *tree.Tree
	runner *projector.Runner
	ends   []func() error // what close does, the last one first
	anew   chan treeAnew
	ready  chan struct{} // closed when tree and runner are there, or could not be opened
	ended  chan struct{} // closed when they stand still

	mu     sync.Mutex // guards what follows
	failed error      // of the way back
}

// treeAnew has the runner of a tree begin again.
type treeAnew struct {
	reset bool // from the first record on
	done  chan error
}

func (k *treeKept) close() (err error) {
	for _, end := range slices.Backward(k.ends) {
		err = errors.Join(err, end())
	}
	return err
}

func (k *treeKept) lock(path string) error {
	f, err := lockfile.Take(path)
	if err == nil {
		k.ends = append(k.ends, f.Close)
	}
	return err
}

// treeClaim is what stores of this user know of a folder.
type treeClaim struct {
	Place string `json:"place"`
	Store string `json:"store"` // "": one that ended with its process
}

// claim makes a folder this store's, for as long as that is there: two stores in one folder
// would each take the other's files for edits of its own.
func (k *treeKept) claim(state, store string) error {
	if state == "" {
		return nil // nobody knows where that is kept
	}
	dir := filepath.Join(state, treesDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	sum := sha256.Sum256([]byte(k.Place()))
	path := filepath.Join(dir, hex.EncodeToString(sum[:16])+".json")
	held := &TreeHeldError{Place: k.Place(), File: path}
	f, err := lockfile.Take(path)
	if errors.Is(err, lockfile.ErrLocked) {
		held.Store = claimIn(path).Store
		return held
	}
	if err != nil {
		return err
	}
	k.ends = append(k.ends, f.Close)
	was := claimIn(path).Store
	if place, err := Look(was); was != "" && was != store && (err != nil || place.State == Present) {
		held.Store = was
		return held
	}
	if store == "" || store == was {
		return nil
	}
	text, err := json.Marshal(treeClaim{k.Place(), store})
	if err != nil {
		return err
	}
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err = f.WriteAt(append(text, '\n'), 0)
	return err
}

// claimIn reads a claim; one that cannot be read is none.
func claimIn(path string) (c treeClaim) {
	if text, err := os.ReadFile(path); err == nil {
		_ = json.Unmarshal(text, &c)
	}
	return c
}

// run keeps the tree until ctx is done. What is appended until then comes into the files, if
// that takes no longer than a view may.
func (k *treeKept) run(ctx context.Context) {
	defer close(k.ended)
	var back sync.WaitGroup
	back.Go(func() {
		if err := k.tree.Run(ctx); err != nil && ctx.Err() == nil {
			k.mu.Lock()
			k.failed = err
			k.mu.Unlock()
			k.logger.Warn("changes of files are not taken in any more", "tree", k.Name, "err", err)
		}
	})
	defer back.Wait()
	for ctx.Err() == nil {
		life, stop := context.WithCancel(ctx)
		var out sync.WaitGroup
		out.Go(func() { k.runner.Run(life) })
		select {
		case a := <-k.anew:
			stop()
			out.Wait()
			var err error
			if a.reset {
				err = k.tree.Reset(ctx)
			}
			a.done <- err
		case <-ctx.Done():
		}
		out.Wait()
		stop()
	}
}

// again has the runner look at once whether it may go on; reset, from the first record on.
func (k *treeKept) again(ctx context.Context, reset bool) error {
	a := treeAnew{reset, make(chan error, 1)}
	select {
	case k.anew <- a:
		return <-a.done
	case <-k.ended:
		return fmt.Errorf("%w: the store is being closed", log.ErrUnavailable)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// shows waits until the tree shows what is at an offset in subjects.
func (k *treeKept) shows(ctx context.Context, at events.Offset, subs []events.Subject) error {
	if err := k.tree.Room(); err != nil {
		return &tally.TreeError{Tree: k.Name, Err: err}
	}
	err := k.runner.Wait(ctx, at)
	if _, asked := errors.AsType[*tree.BulkError](err); asked && k.tree.Room() == nil {
		if err = k.again(ctx, false); err == nil { // it has been answered since
			err = k.runner.Wait(ctx, at)
		}
	}
	if err != nil {
		return &tally.TreeError{Tree: k.Name, Err: err}
	}
	for _, sub := range subs {
		if sub.Namespace != k.Namespace {
			continue
		}
		err := k.tree.Problem(ctx, sub)
		if e, ok := errors.AsType[*tree.Error](err); ok {
			return &tally.TreeError{Tree: k.Name, Path: e.Path, Err: e.Err}
		}
		if err != nil {
			return &tally.TreeError{Tree: k.Name, Err: err}
		}
	}
	return nil
}

// TreeStatus is what is known of a tree.
type TreeStatus struct {
	Name      string            `json:"tree"`
	Place     string            `json:"place"`
	Layout    string            `json:"layout"`
	Namespace string            `json:"namespace"`
	Sync      bool              `json:"sync"`
	Way       string            `json:"way"`
	PID       int               `json:"pid,omitempty"` // that keeps it; 0: none
	Shown     events.Offset     `json:"offset"`
	Units     int               `json:"units"` // sessions and documents
	Files     int               `json:"files"`
	Conflicts int               `json:"conflicts"`
	Skipped   []formats.Problem `json:"skipped,omitempty"`
	Stuck     []formats.Problem `json:"stuck,omitempty"`  // that could not be written
	Asking    string            `json:"asking,omitempty"` // about a mass change
	Watching  string            `json:"watching,omitempty"`
	Error     string            `json:"error,omitempty"` // why nothing is taken in
}

func statusOfTree(t config.Tree) TreeStatus {
	return TreeStatus{Name: t.Name, Place: strings.ReplaceAll(t.Place(), "\n", " "), Layout: t.Layout, Namespace: t.Namespace, Sync: t.Sync, Way: t.Way}
}

// status says how the tree is now.
func (k *treeKept) status(ctx context.Context) TreeStatus {
	s, now := statusOfTree(k.Tree), k.tree.Status()
	s.PID, s.Shown, s.Units, s.Files, s.Skipped, s.Watching = os.Getpid(), now.Shown, now.Units, now.Files, now.Skipped, now.Watching
	if list, err := k.tree.Conflicts(ctx); err == nil {
		s.Conflicts = len(list)
	} else {
		s.Error = err.Error()
	}
	for _, e := range now.Stuck {
		s.Stuck = append(s.Stuck, formats.Problem{File: e.Path, Reason: e.Err.Error()})
	}
	if now.Asking != nil {
		s.Asking = now.Asking.Error()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.failed != nil {
		s.Error = k.failed.Error()
	}
	return s
}

const treeVersion = 1 // of the format of these files

// treeFile says who keeps a tree, and how to ask there, or how the tree was when it was last
// kept.
type treeFile struct {
	Version int        `json:"version"`
	PID     int        `json:"pid,omitempty"`
	URL     string     `json:"url,omitempty"`
	Token   string     `json:"token,omitempty"`
	Tree    TreeStatus `json:"tree"`

	name string
}

// say writes the file of the tree: that it is kept at a desk, or, without one, how it was left.
func (k *treeKept) say(desk *treeDesk, s TreeStatus) error {
	f := treeFile{Version: treeVersion, Tree: s}
	if desk != nil {
		f.PID, f.URL, f.Token = os.Getpid(), desk.url, desk.token
	}
	return writeJSON(filepath.Join(k.dir, k.FileName()+".json"), f, durable.NoSync)
}

// treeFiles returns what processes said of the trees of a store, by its directory of trees.
func treeFiles(dir string) (list []treeFile) {
	if dir == "" {
		return nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // there are none
	}
	for _, e := range entries {
		name, is := strings.CutSuffix(e.Name(), ".json")
		if !is {
			continue
		}
		if f, err := treeFileIn(dir, name); err == nil {
			list = append(list, f)
		}
	}
	return list
}

func treeFileIn(dir, name string) (f treeFile, err error) {
	text, err := os.ReadFile(filepath.Join(dir, name+".json"))
	if err == nil {
		err = json.Unmarshal(text, &f)
	}
	if err == nil && f.Version != treeVersion {
		err = fmt.Errorf("%s is of version %d: %w", name, f.Version, fs.ErrNotExist)
	}
	f.name = name
	return f, err
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
