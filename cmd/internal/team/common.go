package team

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/stores/tavern"
)

// family is a verb that has verbs of its own, and does nothing itself.
func family(cmd *cobra.Command, verbs ...*cobra.Command) *cobra.Command {
	cmd.AddCommand(verbs...)
	return cmdutil.Family(cmd)
}

// refused gives an error of agents and flows its exit code, and says what to do about it.
func refused(err error) error {
	conflict := func(hint string) error { return &cli.CodeError{Code: cli.Conflict, Err: err, Hint: hint} }
	switch {
	case err == nil:
		return nil
	case cli.Is[*tally.LeaseError](err):
		return conflict("Its worker moves it. When the lease is over, " + cmdutil.Program() + " flow recover does what the template says.")
	case cli.Is[*tavern.TransitionError](err), cli.Is[*tavern.FlowOverError](err), cli.Is[*tavern.FlowChildError](err), cli.Is[*log.ConflictError](err), errors.Is(err, tally.ErrExists):
		return conflict("Nothing was written.")
	case cli.Is[*tavern.NodeError](err), cli.Is[*tavern.FlowDepthError](err):
		return &cli.CodeError{Code: cli.BadUsage, Err: err}
	}
	return err
}

// value reads the JSON that an argument names, nothing if there is none.
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

// startedIn is the lineage of what was started in a session, nil for none.
func startedIn(session string) *events.Lineage {
	if session == "" {
		return nil
	}
	return &events.Lineage{Session: session}
}

// list prints a list: its rows for programs, else as a table. If there is nothing in it, it
// says so beside the output.
func list[T any](a *cmdutil.App, rows []T, none string, table func() (render.Table, error)) error {
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

// stamp spells a time, "" for none.
func stamp(t time.Time) events.Timestamp {
	if t.IsZero() {
		return ""
	}
	return events.TimestampOf(t)
}

// minute spells a time for people.
func minute(t events.Timestamp) string {
	at, ok := t.Time()
	if !ok {
		return "-"
	}
	return at.UTC().Format("2006-01-02 15:04")
}
