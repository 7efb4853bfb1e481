// Package cli has the common parts of all commands: exit codes, output, progress, the terminal.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/disk/statefile"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/internal/sealed"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// Exit codes. They are part of the interface: scripts branch on them.
const (
	OK           = 0
	Failed       = 1
	BadUsage     = 2
	Partial      = 3 // some input was unreadable; the rest is usable
	NotFound     = 4 // no such session, document or position
	Integrity    = 5 // verification found a difference, or the log is damaged
	Conflict     = 6 // another writer was faster, or the state does not allow the change
	Unreachable  = 7 // the store cannot be reached, is full, has reached a limit, or did not answer in time
	Incompatible = 8 // the store is too old or too new, or configured such that it could lose records
)

// CodeError is an error with an exit code of its own.
type CodeError struct {
	Code int
	Err  error
	Hint string // next step for the user, printed on its own line
}

func (e *CodeError) Error() string { return e.Err.Error() }

// Unwrap returns the error.
func (e *CodeError) Unwrap() error { return e.Err }

// Usagef returns an error for a mistake in the command line.
func Usagef(format string, args ...any) error {
	return &CodeError{Code: BadUsage, Err: fmt.Errorf(format, args...)}
}

// Silent returns an error that ends a command with a code, after everything was printed.
func Silent(code int) error { return &CodeError{Code: code, Err: errSilent} }

var errSilent = errors.New("")

// signalError is the cause of a context that a signal ended.
type signalError struct{ signal os.Signal }

func (e signalError) Error() string { return "stopped by " + e.signal.String() }

// ExitCode returns the exit code for an error. No other code maps errors to exit codes.
func ExitCode(err error) int {
	if err == nil || errors.Is(err, syscall.EPIPE) { // the reader of the output has closed it
		return OK
	}
	if code, ok := errors.AsType[*CodeError](err); ok {
		return code.Code
	}
	if sig, ok := errors.AsType[signalError](err); ok {
		switch sig.signal {
		case syscall.SIGTERM:
			return 143
		case syscall.SIGHUP:
			return 129
		}
		return 130
	}
	if Is[*config.Error](err) || Is[*events.InvalidError](err) || Is[*events.PersonalError](err) || Is[*sealed.FileError](err) || errors.Is(err, sealed.ErrNoKey) || errors.Is(err, projector.ErrNoLimits) {
		return BadUsage
	}
	if Is[*events.DamageError](err) || Is[*statefile.DamageError](err) || errors.Is(err, log.ErrDamaged) {
		return Integrity
	}
	if Is[*events.TreeError](err) {
		return Partial // the record is stored
	}
	if Is[*log.ConfigError](err) || Is[*log.ServerVersionError](err) || Is[*log.DurabilityError](err) || errors.Is(err, log.ErrNewer) {
		return Incompatible
	}
	switch {
	case errors.Is(err, sealed.ErrSealBroken):
		return Integrity
	case Is[*sealed.UnknownKeyError](err):
		return Partial
	case errors.Is(err, events.ErrNotFound):
		return NotFound
	case errors.Is(err, log.ErrConflict), Is[*events.TypeError](err):
		return Conflict
	case errors.Is(err, log.ErrTooLarge):
		return BadUsage
	case errors.Is(err, log.ErrUnknown), errors.Is(err, log.ErrUnavailable), errors.Is(err, log.ErrFull), errors.Is(err, log.ErrQuota), errors.Is(err, syscall.ENOSPC), errors.Is(err, context.DeadlineExceeded):
		return Unreachable
	}
	return Failed
}

// Is reports whether an error is of a type, or wraps one.
func Is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// Report prints an error once and returns the exit code.
func Report(w io.Writer, name string, err error) int {
	code := ExitCode(err)
	if code == OK || errors.Is(err, errSilent) {
		return code
	}
	// Errors quote ids and names that anybody may have written.
	fmt.Fprintf(w, "%s: %s\n", name, plain.Printable(err.Error()))
	if hint := hintFor(err); hint != "" {
		fmt.Fprintf(w, "  %s\n", plain.Printable(hint))
	}
	return code
}

// hintFor returns the next step for an error.
func hintFor(err error) string {
	if code, ok := errors.AsType[*CodeError](err); ok && code.Hint != "" {
		return code.Hint
	}
	if full, ok := errors.AsType[*log.QuotaError](err); ok {
		return "Delete documents, or ask the owner of the store to raise the limit: tally quota " + full.Scope + " LIMIT. Nothing was written."
	}
	if personal, ok := errors.AsType[*events.PersonalError](err); ok && personal.Subjects > 0 {
		return "Let others use another store, with --store DIR: each user of a store can read all of it."
	}
	switch {
	case errors.Is(err, sealed.ErrNoKey):
		return "Name one with " + sealed.Variable + ": tally secrets --help says how it is made."
	case errors.Is(err, log.ErrConflict):
		return "Something was appended meanwhile; look again and repeat the command."
	case errors.Is(err, log.ErrUnknown):
		return "It may have been stored. Repeating the command with the same ids is safe."
	case errors.Is(err, log.ErrFull), errors.Is(err, syscall.ENOSPC):
		return "Free some space. Acknowledged events are safe, and reads work."
	}
	return ""
}
