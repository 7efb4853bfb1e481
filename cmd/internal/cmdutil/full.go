package cmdutil

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"syscall"
	"time"

	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/log"
)

// fullness reports a full disk in one line. Each part of a store that writes finds the disk
// full by itself, and each would log that.
type fullness struct {
	errw io.Writer

	mu   sync.Mutex // guards said
	said time.Time  // when the line was written last; zero: never
}

// fullAgain is how long after the line another one is written, for a process that goes on.
const fullAgain = time.Minute

// say writes the line, unless it was written lately.
func (f *fullness) say(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.said.IsZero() && time.Since(f.said) < fullAgain {
		return
	}
	f.said = time.Now()
	free := ""
	if full, ok := errors.AsType[*log.FullError](err); ok {
		free = fmt.Sprintf(" (%s free)", plain.Bytes(full.Free))
	}
	fmt.Fprintf(f.errw, "the disk of the store is full%s: appends are refused until there is room, and reads go on, from the log where a view is behind\n", free)
}

// wasSaid reports whether the line was written.
func (f *fullness) wasSaid() bool {
	if f == nil {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.said.IsZero()
}

func isFull(err error) bool {
	return errors.Is(err, log.ErrFull) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// A quiet handler hands records on, but for those about a full disk.
type quietHandler struct {
	slog.Handler
	full *fullness
}

func (h quietHandler) Handle(ctx context.Context, r slog.Record) error {
	var full error
	r.Attrs(func(a slog.Attr) bool {
		if err, ok := a.Value.Any().(error); ok && isFull(err) {
			full = err
		}
		return full == nil
	})
	if full == nil {
		return h.Handler.Handle(ctx, r)
	}
	h.full.say(full)
	if h.Handler.Enabled(ctx, slog.LevelDebug) {
		return h.Handler.Handle(ctx, r)
	}
	return nil
}

func (h quietHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return quietHandler{h.Handler.WithAttrs(attrs), h.full}
}

func (h quietHandler) WithGroup(name string) slog.Handler {
	return quietHandler{h.Handler.WithGroup(name), h.full}
}

// Refused returns why the store that a configuration names takes no appends, nil if it does.
func Refused(c config.Config) error {
	if c.Backend != config.Local {
		return nil
	}
	if readOnly, is := errors.AsType[*embedded.ReadOnlyError](embedded.Writable(c.Store)); is {
		return readOnly
	}
	free, err := embedded.FreeBytes(c.Store)
	if err == nil && free < embedded.Reserve {
		return &cli.CodeError{Code: cli.Unreachable, Err: &log.FullError{Free: int64(free), Reserve: embedded.Reserve}}
	}
	return nil
}
