package keeper

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/tree"
	"github.com/tallylog/tally/projector"
)

// maxAccepts bounds the rounds of meet, as programs may write files meanwhile.
const maxAccepts = 5

// meet imports the files. In a folder that the tree sees for the first time, meet accepts any number of files without
// asking, as the program that named the folder wants them.
func (k *keptTree) meet(ctx context.Context) error {
	met, accepted := k.tree.Status().Met, 0
	err := k.caughtUp(ctx)
	for err == nil {
		err = k.tree.Pull(ctx)
		if _, asks := errors.AsType[*tree.BulkError](err); !asks || met || accepted == maxAccepts {
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

// keptTree is a tree that this process keeps.
type keptTree struct {
	config.Tree
	logger   *slog.Logger
	tree     *tree.Tree
	runner   *projector.Runner
	left     Status         // of the last keeper
	ends     []func() error // called by close, the last one first
	restarts chan restart
	ready    chan struct{} // closed when tree and runner are set, or err is
	err      error         // why the tree could not be opened
	ended    chan struct{} // closed when tree and runner have stopped
	using    sync.RWMutex  // held for reading while a question is answered

	mu     sync.Mutex // guards the field below
	failed error      // of watching the files
}

// restart asks the runner of a tree to begin again.
type restart struct {
	reset  bool             // from the first record on
	erased []events.Subject // write the files of these subjects again
	done   chan error
}

// use returns a context that ends when the tree stops. The tree is closed only after the caller called done.
func (k *keptTree) use(ctx context.Context) (_ context.Context, done func(), err error) {
	k.using.RLock()
	select {
	case <-k.ended:
		k.using.RUnlock()
		return nil, nil, errClosing
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

func (k *keptTree) close() (err error) {
	k.using.Lock()
	defer k.using.Unlock()
	for _, end := range slices.Backward(k.ends) {
		err = errors.Join(err, end())
	}
	return err
}

// run keeps the tree until ctx is done. The records appended until then still reach the files, if the runner catches up
// in the time that a view has.
func (k *keptTree) run(ctx context.Context) {
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
	for first := true; first || ctx.Err() == nil; first = false { // at least once: a runner whose ctx is done catches up
		life, stop := context.WithCancel(ctx)
		var out sync.WaitGroup
		out.Go(func() { k.runner.Run(life) })
		select {
		case a := <-k.restarts:
			stop()
			out.Wait()
			var err error
			if a.reset {
				err = k.tree.Reset(ctx)
			}
			if len(a.erased) > 0 {
				err = k.runner.Refold(ctx, a.erased)
			}
			a.done <- err
		case <-ctx.Done():
		}
		out.Wait()
		stop()
	}
}

// again restarts the runner, which then continues at once if it can. With reset it begins with the first record.
func (k *keptTree) again(ctx context.Context, reset bool) error {
	return k.restart(ctx, restart{reset: reset})
}

func (k *keptTree) restart(ctx context.Context, a restart) error {
	a.done = make(chan error, 1)
	select {
	case k.restarts <- a:
		return <-a.done
	case <-k.ended:
		return errClosing
	case <-ctx.Done():
		return ctx.Err()
	}
}

// wait waits until the tree shows the record at an offset.
func (k *keptTree) wait(ctx context.Context, at events.Offset) error {
	ctx, done, err := k.use(ctx)
	if err != nil {
		return err
	}
	defer done()
	return k.runner.Wait(ctx, at)
}

// shows waits until the files show the subjects as of an offset. The error is a *events.TreeError.
func (k *keptTree) shows(ctx context.Context, at events.Offset, subs []events.Subject) error {
	ctx, done, err := k.use(ctx)
	if err == nil {
		defer done()
		err = k.show(ctx, at, subs)
	}
	told := &events.TreeError{Tree: k.Name, Err: err}
	if e, ok := errors.AsType[*tree.Error](err); ok {
		told.Path, told.Err = e.Path, e.Err
	}
	if err != nil {
		return told
	}
	return nil
}

func (k *keptTree) show(ctx context.Context, at events.Offset, subs []events.Subject) error {
	if err := k.tree.Room(); err != nil {
		return err
	}
	err := k.runner.Wait(ctx, at)
	if _, asked := errors.AsType[*tree.BulkError](err); asked && k.tree.Room() == nil {
		if err = k.again(ctx, false); err == nil { // the question was answered meanwhile
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
