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

// patience is how long stopping takes before something is said.
const patience = 300 * time.Millisecond

// Interruptible returns a context that the first SIGINT, SIGTERM or SIGHUP ends, with the
// signal as its cause, and that is said if it takes time; a second SIGINT or SIGTERM ends the
// process at once. A closed output pipe is an error of the write instead of a signal. A
// SIGHUP that is ignored, as under nohup, stays ignored; see [OnHangup].
func Interruptible(ctx context.Context, errw io.Writer) (context.Context, context.CancelFunc) {
	return interruptible(ctx, errw, patience)
}

func interruptible(ctx context.Context, errw io.Writer, patience time.Duration) (context.Context, context.CancelFunc) {
	h := &hangup{terminal: HasTerminal()}
	ctx, cancel := context.WithCancelCause(context.WithValue(ctx, hangupKey{}, h))
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(signals, syscall.SIGHUP)
	}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // rather than ignored, which a pager would inherit
	done := make(chan struct{})
	go func() {
		var slow <-chan time.Time
		for n := 0; ; {
			select {
			case sig := <-signals:
				if sig == syscall.SIGHUP && (n > 0 || h.handled()) {
					continue // a terminal that is closed sends more than one
				}
				if n > 0 {
					os.Exit(ExitCode(signalError{sig}))
				}
				n++
				cancel(signalError{sig})
				slow = time.After(patience)
			case <-slow:
				fmt.Fprintf(errw, "stopping; once more to stop at once\n")
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

// hangup decides about SIGHUP.
type hangup struct {
	terminal bool // the process had one when it started

	mu sync.Mutex // guards f
	f  func()
}

type hangupKey struct{}

// OnHangup has f called on SIGHUP, instead of the end of a context that [Interruptible]
// returned. If the signal comes because the terminal of the process was closed, the context
// ends all the same.
func OnHangup(ctx context.Context, f func()) {
	h, ok := ctx.Value(hangupKey{}).(*hangup)
	if !ok {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.f = f
}

// handled calls the function that there is for the signal, if the process is to go on.
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

// Cause returns the reason why ctx ended in the place of an error that only says
// that it did.
func Cause(ctx context.Context, err error) error {
	if sig, ok := context.Cause(ctx).(signalError); ok && err != nil {
		return sig
	}
	return err
}
