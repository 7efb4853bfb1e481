package cmdutil

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/render/plain"
)

// lostRecords has the lost records of the subjects that a command read. An answer that rests on such a subject may be
// incomplete, so the command reports them.
type lostRecords struct {
	mu  sync.Mutex // guards at
	at  []events.Offset
	err error // the first error
}

func (l *lostRecords) note(damage *events.DamageError) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = damage
	}
	if !slices.Contains(l.at, damage.Offset) {
		l.at = append(l.at, damage.Offset)
	}
}

// answer returns the error that ends a command. If the command met lost records, it prints them, and the exit code is
// that of damage.
func (l *lostRecords) answer(errw io.Writer, err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.at) == 0 {
		return err
	}
	switch code := cli.ExitCode(err); {
	case code == cli.OK, err.Error() == "" && code <= cli.Conflict:
		fmt.Fprintf(errw, "%s\n", lostText(l.at))
		return cli.Silent(cli.Integrity)
	case code == cli.Failed, code == cli.BadUsage, code == cli.Partial, code == cli.NotFound, code == cli.Conflict:
		return &cli.CodeError{Code: cli.Integrity, Err: errors.Join(err, errors.New(lostText(l.at)))}
	}
	return err
}

// lostText formats a report of lost records.
func lostText(at []events.Offset) string {
	return fmt.Sprintf("%s cannot be read, and what rests on it may be incomplete: %s", plain.Count(len(at), "record"), offsetsText(at))
}

// offsetsText formats offsets, the first ones of many.
func offsetsText(at []events.Offset) string {
	const most = 8
	at = slices.SortedFunc(slices.Values(at), func(a, b events.Offset) int { return cmp.Compare(a, b) })
	names := make([]string, min(len(at), most))
	for i := range names {
		names[i] = at[i].String()
	}
	text := strings.Join(names, ", ")
	if more := len(at) - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
