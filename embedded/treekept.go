package embedded

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/tree"
	"github.com/tallylog/tally/projector"
)

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

// treeKept is a tree that this process keeps.
type treeKept struct {
	config.Tree
	logger *slog.Logger
	tree   *tree.Tree
	runner *projector.Runner
	ends   []func() error // what close does, the last one first
	anew   chan treeAnew
	ready  chan struct{} // closed when tree and runner are there, or err is set
	err    error         // why the tree could not be opened
	ended  chan struct{} // closed when tree and runner stand still
	using  sync.RWMutex  // held for reading while a question is answered

	mu     sync.Mutex // guards what follows
	failed error      // of the way back
}

// treeAnew has the runner of a tree begin again.
type treeAnew struct {
	reset bool // from the first record on
	done  chan error
}

// use returns a context that ends when the tree stands still. The tree is closed after done.
func (k *treeKept) use(ctx context.Context) (_ context.Context, done func(), err error) {
	k.using.RLock()
	select {
	case <-k.ended:
		k.using.RUnlock()
		return nil, nil, errTreesEnd
	default:
	}
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-k.ended:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(); k.using.RUnlock() }, nil
}

func (k *treeKept) close() (err error) {
	k.using.Lock()
	defer k.using.Unlock()
	for _, end := range slices.Backward(k.ends) {
		err = errors.Join(err, end())
	}
	return err
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
	for first := true; first || ctx.Err() == nil; first = false { // once in any case: a runner whose ctx is done catches up
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
		return errTreesEnd
	case <-ctx.Done():
		return ctx.Err()
	}
}

// wait waits until the tree shows the record at an offset.
func (k *treeKept) wait(ctx context.Context, at events.Offset) error {
	ctx, done, err := k.use(ctx)
	if err != nil {
		return err
	}
	defer done()
	return k.runner.Wait(ctx, at)
}

// shows waits until the tree shows what is at an offset in subjects. The error is a
// *tally.TreeError.
func (k *treeKept) shows(ctx context.Context, at events.Offset, subs []events.Subject) error {
	ctx, done, err := k.use(ctx)
	if err == nil {
		defer done()
		err = k.show(ctx, at, subs)
	}
	told := &tally.TreeError{Tree: k.Name, Err: err}
	if e, ok := errors.AsType[*tree.Error](err); ok {
		told.Path, told.Err = e.Path, e.Err
	}
	if err != nil {
		return told
	}
	return nil
}

func (k *treeKept) show(ctx context.Context, at events.Offset, subs []events.Subject) error {
	if err := k.tree.Room(); err != nil {
		return err
	}
	err := k.runner.Wait(ctx, at)
	if _, asked := errors.AsType[*tree.BulkError](err); asked && k.tree.Room() == nil {
		if err = k.again(ctx, false); err == nil { // it has been answered since
			err = k.runner.Wait(ctx, at)
		}
	}
	for _, sub := range subs {
		if err == nil && sub.Namespace == k.Namespace {
			err = k.tree.Problem(ctx, sub)
		}
	}
	return err
}
