package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Interruptible returns a context that the first SIGINT or SIGTERM ends, with the
// signal as its cause; a second one ends the process at once. A closed output
// pipe is an error of the write instead of a signal.
func Interruptible(ctx context.Context, errw io.Writer) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	signal.Ignore(syscall.SIGPIPE)
	done := make(chan struct{})
	go func() {
		for n := 0; ; n++ {
			select {
			case sig := <-signals:
				if n > 0 {
					os.Exit(ExitCode(signalError{sig}))
				}
				fmt.Fprintf(errw, "stopping; once more to stop at once\n")
				cancel(signalError{sig})
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
