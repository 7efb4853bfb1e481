package team

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/stores/tavern"
)

// commitmentNames explains how commitments are named, for help texts.
const commitmentNames = `A commitment is named by its id, a beginning of the id, or its description.`

func newAgentCommit(a *cmdutil.App) *cobra.Command {
	var assertion, amend, remove string
	cmd := &cobra.Command{
		Use: "commit ID [DESCRIPTION]", Short: "Add a commitment to an agent, or change or remove one", Args: cobra.RangeArgs(1, 2),
		Long: `Add a commitment to an agent: a promise on one line, and with --assertion the command that
checks it. The command is stored and not run; tally agent verify --run runs it.

--amend replaces the description of a commitment, which is pending again afterwards.
--remove removes a commitment.

` + agentNames + `
` + commitmentNames,
		Example: cmdutil.Examples("tally agent commit kettle 'The tests pass' --assertion 'go test ./...'", "tally agent commit kettle 'All tests pass' --amend 'The tests pass' --assertion 'go test -race ./...'", "tally agent commit kettle --remove 1f3a"),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case (len(args) == 2) == (remove != ""):
				return cli.Usagef("want a DESCRIPTION, or --remove COMMITMENT")
			case remove != "" && (amend != "" || assertion != ""):
				return cli.Usagef("--remove cannot be used with --amend or --assertion")
			}
			return changed(cmd.Context(), a, args[0], func(m *member) error {
				ctx := cmd.Context()
				if amend == "" && remove == "" {
					c := tavern.Commitment{ID: uuid.NewString(), Description: args[1], Assertion: assertion}
					return m.do(ctx, func(agent *tavern.Agent) error { return agent.Add(ctx, c) })
				}
				c, err := commitmentNamed(ctx, m, amend+remove)
				switch {
				case err != nil:
					return err
				case remove != "":
					return m.once(ctx, func(agent *tavern.Agent) error { return agent.Remove(ctx, c.ID) },
						func(_ *tavern.Agent, err error) bool { return errors.Is(err, tally.ErrNotFound) })
				}
				return m.do(ctx, func(agent *tavern.Agent) error { return agent.Amend(ctx, c.ID, args[1], assertion) })
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&assertion, "assertion", "", "command that checks the commitment")
	f.StringVar(&amend, "amend", "", "commitment to change")
	f.StringVar(&remove, "remove", "", "commitment to remove")
	return cmd
}

// commitmentNamed returns the commitment of an agent that a word names.
func commitmentNamed(ctx context.Context, m *member, name string) (tavern.Commitment, error) {
	i, err := m.info(ctx)
	if err != nil {
		return tavern.Commitment{}, err
	}
	var found []tavern.Commitment
	for _, c := range i.Commitments {
		if c.ID == name || c.Description == name {
			return c, nil
		}
		if name != "" && strings.HasPrefix(c.ID, name) {
			found = append(found, c)
		}
	}
	switch len(found) {
	case 0:
		return tavern.Commitment{}, &cli.CodeError{Code: cli.NotFound, Err: fmt.Errorf("agent %s has no commitment %q: %w", i.ID, name, tally.ErrNotFound), Hint: cmdutil.Program() + " agent show " + i.ID + " lists its commitments."}
	case 1:
		return found[0], nil
	}
	return tavern.Commitment{}, cli.Usagef("%q names %d commitments of agent %s", name, len(found), i.ID)
}
