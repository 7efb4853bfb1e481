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
	"github.com/tallylog/tally/internal/storedir"
	"github.com/tallylog/tally/log"
)

// fullness reports a full disk in one line. Each writing part of a store meets the full disk, and would log it.
type fullness struct {
	errw io.Writer

	mu   sync.Mutex // guards said
	said time.Time  // time of the last report; zero: never
}

// fullAgain is the time after which the report is repeated, for a process that goes on.
const fullAgain = time.Minute

// say writes the report, unless it was written within fullAgain.
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
	fmt.Fprintf(f.errw, "the disk of the store is full%s: appends are refused until there is free space; reads work, and use the log if a view is behind\n", free)
}

// wasSaid reports whether the report was written.
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

// A quietHandler drops records about a full disk.
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

// Refused returns the reason for which the store of a configuration refuses appends, nil if it accepts them.
func Refused(c config.Config) error {
	if c.Backend != config.Local {
		return nil
	}
	if readOnly, is := errors.AsType[*embedded.ReadOnlyError](storedir.Writable(c.Store)); is {
		return readOnly
	}
	free, err := storedir.FreeBytes(c.Store)
	if err == nil && free < embedded.Reserve {
		return &cli.CodeError{Code: cli.Unreachable, Err: &log.FullError{Free: int64(free), Reserve: embedded.Reserve}}
	}
	return nil
}
