package team

import (
	"errors"
	"fmt"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/stores/tavern"
)

// refused adds the exit code and a hint to an error about an agent or a flow.
func refused(err error) error {
	conflict := func(hint string) error { return &cli.CodeError{Code: cli.Conflict, Err: err, Hint: hint} }
	switch {
	case err == nil:
		return nil
	case cli.Is[*tally.LeaseError](err):
		return conflict("Only its worker can move it. When the lease has ended, " + cmdutil.Program() + " flow recover applies the template's rule.")
	case cli.Is[*tavern.TransitionError](err), cli.Is[*tavern.FlowOverError](err), cli.Is[*tavern.FlowChildError](err), cli.Is[*log.ConflictError](err), errors.Is(err, tally.ErrExists):
		return conflict("Nothing was written.")
	case cli.Is[*tavern.NodeError](err), cli.Is[*tavern.FlowDepthError](err):
		return &cli.CodeError{Code: cli.BadUsage, Err: err}
	}
	return err
}

// value reads the JSON file that the first argument names. Without arguments it returns nil.
func value(a *cmdutil.App, args []string) (events.Raw, error) {
	if len(args) == 0 {
		return nil, nil
	}
	data, err := a.Content(args)
	if err == nil && rawjson.Check(data) != nil {
		err = cli.Usagef("%s is not JSON: %v", args[0], rawjson.Check(data))
	}
	return data, err
}

// startedIn returns the lineage of an agent or a flow that was started in a session, nil for "".
func startedIn(session string) *events.Lineage {
	if session == "" {
		return nil
	}
	return &events.Lineage{Session: session}
}

// printRows prints rows as JSON or as a table. In text, it prints none on standard error if there are no rows.
func printRows[T any](a *cmdutil.App, rows []T, none string, table func() (render.Table, error)) error {
	switch {
	case a.Format != cli.Text:
		return cli.WriteList(a.Out, a.Format, rows)
	case len(rows) == 0:
		fmt.Fprintln(a.Err, none)
		return nil
	}
	t, err := table()
	if err != nil {
		return err
	}
	return a.Table(t)
}

// stamp formats a time as RFC 3339, the zero time as "".
func stamp(t time.Time) events.Timestamp {
	if t.IsZero() {
		return ""
	}
	return events.TimestampOf(t)
}
