package team

import (
	"bytes"
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/stores/tavern"
)

func newAgentNew(a *cmdutil.App) *cobra.Command {
	var o tavern.NewAgentOptions
	var parent, file string
	cmd := &cobra.Command{
		Use: "new [NAME]", Short: "Create an agent", Args: cobra.MaximumNArgs(1),
		Long: `Create an agent with a new id, in the state idle. With --file the name, the state and the
commitments come from the file. If an agent with that id exists, the exit code is 6.`,
		Example: cmdutil.Examples("tally agent new Kettle --assignment 'Boil water.' --owner ann", "tally agent new Spout --parent agent/8f14e45f-ceea-467f-a0e6-6c1b1b1f1b1f", "tally agent new --file kettle.md -o json"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			switch {
			case (len(args) == 1) == (file != ""):
				return cli.Usagef("want a NAME, or a --file that contains one")
			case file != "" && (o.ID != "" || o.Assignment != ""):
				return cli.Usagef("--id and --assignment cannot be used with --file: the file contains them")
			case file != "":
				o.File, err = a.Content([]string{file})
			default:
				o.Name = args[0]
			}
			o.Parent = startedIn(parent)
			if err != nil {
				return err
			}
			return riding(cmd.Context(), a, a.Open, func(s *store) error { return born(cmd.Context(), a, s, o) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Assignment, "assignment", "", "task of the agent")
	f.StringVar(&o.ID, "id", "", "id of the agent, a UUID; default: a new one")
	f.StringVar(&parent, "parent", "", "session that started it, such as agent/ID")
	f.StringVar(&o.Owner, "owner", "", "owner of the agent")
	f.StringVar(&o.Layer, "layer", "", "layer of its file: project or personal")
	f.StringVar(&file, "file", "", "its file, - for standard input")
	return cmd
}

// born creates an agent and prints it. If an earlier attempt had an unknown outcome, an existing agent with the same file
// counts as created.
func born(ctx context.Context, a *cmdutil.App, s *store, o tavern.NewAgentOptions) error {
	if o.ID == "" && o.File == nil {
		o.ID = uuid.NewString()
	}
	m := &member{store: s}
	err := s.once(ctx, func(st *tally.Store) error {
		agent, err := tavern.NewAgent(ctx, st, o)
		if agent != nil {
			m.id = agent.ID()
		}
		return err
	}, func(st *tally.Store, err error) bool {
		if !errors.Is(err, tally.ErrExists) {
			return false
		}
		i, err := tavern.AgentOf(st, m.id).Info(ctx)
		return err == nil && (o.File == nil || bytes.Equal(i.Node, o.File))
	})
	if err != nil {
		return refused(err)
	}
	return m.say(ctx, a)
}
