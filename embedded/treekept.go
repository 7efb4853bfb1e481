package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/tree"
	"github.com/tallylog/tally/log"
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
