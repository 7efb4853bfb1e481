package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// patience is how long stopping takes before something is said.
const patience = 300 * time.Millisecond

// Interruptible returns a context that the first SIGINT or SIGTERM ends, with the
// signal as its cause, and that is said if it takes time; a second one ends the process at
// once. A closed output pipe is an error of the write instead of a signal.
func Interruptible(ctx context.Context, errw io.Writer) (context.Context, context.CancelFunc) {
	return interruptible(ctx, errw, patience)
}

func interruptible(ctx context.Context, errw io.Writer, patience time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // rather than ignored, which a pager would inherit
	done := make(chan struct{})
	go func() {
		var slow <-chan time.Time
		for n := 0; ; {
			select {
			case sig := <-signals:
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

// Cause returns the reason why ctx ended in the place of an error that only says
// that it did.
func Cause(ctx context.Context, err error) error {
	if sig, ok := context.Cause(ctx).(signalError); ok && err != nil {
		return sig
	}
	return err
}
