package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/stores/tavern"
)

// Names of the measurements of tally queue work.
const (
	whatStarted       = "from ack to process"
	whatStartedBeside = "from ack to process, beside sessions"
	whatSessions      = "turns of 1,000 sessions, one a second each"
)

// otherSessions get a turn a second each during a measurement beside them.
const otherSessions = 1000

// ackToStart measures the time from the acknowledgement of an item until an idle tally queue work has started a
// process for it. The process is a shell that prints a line to its standard error.
func ackToStart(ctx context.Context, dir string, d time.Duration) (m measured, err error) {
	err = withViews(ctx, dir, func(st *tally.Store, store string) error {
		m, err = startsOf(ctx, st, store, d)
		return err
	})
	return m, err
}

// ackToStartBeside measures the same while other sessions get turns.
func ackToStartBeside(ctx context.Context, dir string, d time.Duration) (found []measured, err error) {
	err = withViews(ctx, dir, func(st *tally.Store, store string) error {
		busy, stop := context.WithCancel(ctx)
		defer stop()
		var running sync.WaitGroup
		var beside measured
		var failed error
		running.Go(func() { beside, failed = sessionTurns(busy, st) })
		starts, err := startsOf(ctx, st, store, d)
		stop()
		running.Wait()
		starts.What, starts.Producers = whatStartedBeside, 1
		beside.What, beside.Producers = whatSessions, otherSessions
		found = []measured{starts, beside}
		return errors.Join(err, failed)
	})
	return found, err
}

// sessionTurns appends turns to other sessions until ctx is done.
func sessionTurns(ctx context.Context, st *tally.Store) (measured, error) {
	var running sync.WaitGroup
	var mu sync.Mutex
	var all []int64
	var failed error
	began := time.Now()
	for n := range otherSessions {
		running.Go(func() {
			own, err := turnsOf(ctx, st, n)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, own...)
			failed = errors.Join(failed, err)
		})
	}
	running.Wait()
	if failed != nil || len(all) == 0 {
		return measured{}, failed
	}
	return quantiles(all, time.Since(began)), nil
}

// turnsOf appends a turn a second to a session. The sessions begin one after the other.
func turnsOf(ctx context.Context, st *tally.Store, n int) (took []int64, err error) {
	next := time.NewTimer(time.Duration(n) * time.Second / otherSessions)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return took, nil
		case <-next.C:
		}
		next.Reset(time.Second)
		before := time.Now()
		if _, err := st.Session(fmt.Sprint("beside-", n)).AppendTurns(ctx, events.MainThread, turnBytes); err != nil {
			if ctx.Err() != nil {
				err = nil // the end was requested
			}
			return took, err
		}
		took = append(took, time.Since(before).Microseconds())
	}
}

// startsOf adds items, each after the previous one is done, and measures the time until a process has started.
func startsOf(ctx context.Context, st *tally.Store, store string, d time.Duration) (measured, error) {
	store, err := filepath.Abs(store)
	if err != nil {
		return measured{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, d+startLimit)
	defer cancel()
	w, err := startWork(ctx, store)
	if err != nil {
		return measured{}, err
	}
	var waits []int64
	q := tavern.QueueOf(st, benchKind)
	for began := time.Now(); err == nil && ctx.Err() == nil && (time.Since(began) < d || len(waits) == 0); {
		var took time.Duration
		if took, err = w.start(ctx, q); err == nil {
			waits = append(waits, took.Microseconds())
		}
	}
	if err := errors.Join(err, w.stop()); err != nil || len(waits) < 2 {
		return measured{}, err
	}
	return quantiles(waits[1:], d), nil // the first item also waits for the worker's start
}

// startLimit is the time limit for an added item to be done.
const startLimit = 30 * time.Second

// working is a process that runs tally queue work.
type working struct {
	cmd      *exec.Cmd
	out, err *bufio.Reader
	end      context.CancelFunc
}

// started is the line that a process for an item prints.
const started = "started"

// workNoun and workVerb are the command of tally that runs a command for each item of a queue.
const (
	workNoun = "queue"
	workVerb = "work"
)

// startWork starts tally queue work on the queue of a store.
func startWork(ctx context.Context, store string) (*working, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	ctx, end := context.WithCancel(ctx)
	w := &working{cmd: exec.CommandContext(ctx, self, workNoun, workVerb, "--store", store, "-o", "jsonl", benchKind, "--", "sh", "-c", "echo "+started+" >&2"), end: end}
	w.cmd.Dir = store // a folder without a project's file
	w.cmd.Cancel = func() error { return w.cmd.Process.Signal(os.Interrupt) }
	w.cmd.WaitDelay = 10 * time.Second
	w.cmd.Env = plainEnvironment()
	for _, pipe := range []struct {
		to *(*bufio.Reader)
		of func() (io.ReadCloser, error)
	}{{&w.out, w.cmd.StdoutPipe}, {&w.err, w.cmd.StderrPipe}} {
		r, err := pipe.of()
		if err != nil {
			end()
			return nil, err
		}
		*pipe.to = bufio.NewReader(r)
	}
	if err := w.cmd.Start(); err != nil {
		end()
		return nil, err
	}
	return w, nil
}

// plainEnvironment returns the environment without the settings of tally and its servers.
func plainEnvironment() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "TALLY_") || strings.HasPrefix(v, "NATS_") })
}

// start adds an item, and returns the time until its process started. It waits until the item is done.
func (w *working) start(ctx context.Context, q *tavern.Queue) (time.Duration, error) {
	if _, err := q.Enqueue(ctx, tavern.Item{Body: turnBytes}); err != nil {
		return 0, err
	}
	acked := time.Now()
	line, err := w.err.ReadString('\n')
	took := time.Since(acked)
	if err == nil && line != started+"\n" {
		err = errors.New(strings.TrimSpace(line))
	}
	if err == nil {
		_, err = w.out.ReadString('\n')
	}
	if err != nil {
		return 0, fmt.Errorf("tally queue work: %w", err)
	}
	return took, nil
}

// stop interrupts tally queue work. Its exit code only tells that.
func (w *working) stop() error {
	w.end()
	err := w.cmd.Wait()
	if _, ok := errors.AsType[*exec.ExitError](err); ok || errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
