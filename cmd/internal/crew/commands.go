// Package crew has the verbs for agents, what they promise, the workflows that they go
// through, and the transcripts that their vendor keeps.
package crew

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/app"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/cli"
	"github.com/tallylog/tally/internal/plain"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/stores/tavern"
)

// Commands returns the verbs, anew for each run.
func Commands(a *app.App) []*cobra.Command {
	return append(app.Paged(newAgents(a), newFlows(a), newTranscripts(a)), newAgent(a), newFlow(a))
}

// family is a verb that has verbs of its own, and does nothing itself.
func family(cmd *cobra.Command, verbs ...*cobra.Command) *cobra.Command {
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		return &cli.CodeError{Code: cli.BadUsage, Err: fmt.Errorf("%s has no command %q", cmd.CommandPath(), args[0]), Hint: cmd.CommandPath() + " --help lists its commands."}
	}
	cmd.AddCommand(verbs...)
	return cmd
}

// refused gives an error of agents and flows its exit code, and says what to do about it.
func refused(err error) error {
	conflict := func(hint string) error { return &cli.CodeError{Code: cli.Conflict, Err: err, Hint: hint} }
	switch {
	case err == nil:
		return nil
	case cli.Is[*tavern.FlowHeldError](err):
		return conflict("Its worker moves it. When the lease is over, " + app.Program() + " flow recover does what the template says.")
	case cli.Is[*tavern.TransitionError](err), cli.Is[*tavern.FlowOverError](err), cli.Is[*tavern.FlowChildError](err), errors.Is(err, tally.ErrExists):
		return conflict("Nothing was written.")
	case cli.Is[*tavern.NodeError](err), cli.Is[*tavern.FlowDepthError](err):
		return &cli.CodeError{Code: cli.BadUsage, Err: err}
	}
	return err
}

// content reads the file that an argument names, standard input for a dash.
func content(a *app.App, name string) ([]byte, error) {
	in := a.In
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, events.MaxValue+1))
	if err == nil && len(data) > events.MaxValue {
		err = cli.Usagef("%s has more than %s", name, plain.Bytes(events.MaxValue))
	}
	return data, err
}

// value reads the JSON that an argument names, nothing if there is none.
func value(a *app.App, args []string) (events.Raw, error) {
	if len(args) == 0 {
		return nil, nil
	}
	data, err := content(a, args[0])
	if err == nil && rawjson.Check(data) != nil {
		err = cli.Usagef("%s is not JSON: %v", args[0], rawjson.Check(data))
	}
	return data, err
}

// minute spells a time for a table.
func minute(t events.Timestamp) string {
	at, ok := t.Time()
	if !ok {
		return "-"
	}
	return at.UTC().Format("2006-01-02 15:04")
}
