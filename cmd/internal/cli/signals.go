package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// stopPatience is the time after which a slow stop is reported.
const stopPatience = 300 * time.Millisecond

// Interruptible returns a context that the first SIGINT, SIGTERM or SIGHUP ends, with the signal as its cause. If
// stopping takes time, a message says so. A second SIGINT or SIGTERM ends the process at once. A closed output pipe is
// a write error instead of a signal. If SIGHUP is ignored, as under nohup, it stays ignored; see [OnHangup].
func Interruptible(ctx context.Context, errw io.Writer) (context.Context, context.CancelFunc) {
	return interruptible(ctx, errw, stopPatience)
}

func interruptible(ctx context.Context, errw io.Writer, patience time.Duration) (context.Context, context.CancelFunc) {
	h := &hangup{terminal: HasTerminal()}
	ctx, cancel := context.WithCancelCause(context.WithValue(ctx, hangupKey{}, h))
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(signals, syscall.SIGHUP)
	}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // not ignored, which a pager would inherit
	done := make(chan struct{})
	go func() {
		var slow <-chan time.Time
		for n := 0; ; {
			select {
			case sig := <-signals:
				if sig == syscall.SIGHUP && (n > 0 || h.handled()) {
					continue // a closed terminal sends several
				}
				if n > 0 {
					os.Exit(ExitCode(signalError{sig}))
				}
				n++
				cancel(signalError{sig})
				slow = time.After(patience)
			case <-slow:
				fmt.Fprintf(errw, "stopping; repeat the signal to stop at once\n")
			case <-done:
				return
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		cancel(nil)
	}
}

// hangup handles SIGHUP.
type hangup struct {
	terminal bool // the process had a terminal at its start

	mu sync.Mutex // guards f
	f  func()
}

type hangupKey struct{}

// OnHangup calls f on SIGHUP, instead of ending a context from [Interruptible]. If the signal comes because the
// process's terminal was closed, the context ends nevertheless.
func OnHangup(ctx context.Context, f func()) {
	h, ok := ctx.Value(hangupKey{}).(*hangup)
	if !ok {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.f = f
}

// handled calls the function for the signal, if the process goes on.
func (h *hangup) handled() bool {
	h.mu.Lock()
	f := h.f
	h.mu.Unlock()
	if f == nil || h.terminal && !HasTerminal() {
		return false
	}
	f()
	return true
}

// Cause replaces an error that only says that ctx ended by the cause.
func Cause(ctx context.Context, err error) error {
	if sig, ok := context.Cause(ctx).(signalError); ok && err != nil {
		return sig
	}
	return err
}
