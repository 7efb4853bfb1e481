package team

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/stores/tavern"
)

// agentStates are the states that a user can set.
var agentStates = []string{tavern.AgentIdle, tavern.AgentWorking, tavern.AgentWaiting, tavern.AgentVerifying, tavern.AgentDone, tavern.AgentError, tavern.AgentArchived}

func newAgentState(a *cmdutil.App) *cobra.Command {
	var reason string
	force := false
	cmd := &cobra.Command{
		Use: "state ID " + strings.Join(agentStates, "|"), Short: "Change the state of an agent", Args: cobra.ExactArgs(2),
		Long: `Change the state of an agent. If the new state may not follow the present one, the error
lists the allowed states and the exit code is 6. An agent can be set to done when all its
commitments have passed, or with --force and a --reason. To reopen a done agent, a --reason
is needed too. If the agent is in that state already, nothing is written.

` + agentNames,
		Example: cmdutil.Examples("tally agent state kettle working", "tally agent state kettle done --force --reason 'good enough'", "tally agent state kettle archived"),
		RunE: func(cmd *cobra.Command, args []string) error {
			to := strings.ToLower(args[1])
			if !slices.Contains(agentStates, to) {
				return cli.Usagef("state %q: want %s; reap and dismiss stop an agent", args[1], cmdutil.Or(agentStates))
			}
			if force && (to != tavern.AgentDone || reason == "") {
				return cli.Usagef("--force needs the state done and a --reason")
			}
			return changed(cmd.Context(), a, args[0], func(m *member) error {
				return m.do(cmd.Context(), func(agent *tavern.Agent) error {
					if force {
						return agent.ForceDone(cmd.Context(), reason)
					}
					return agent.SetState(cmd.Context(), to, reason)
				})
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why")
	cmd.Flags().BoolVar(&force, "force", false, "with done, even if commitments have not passed")
	return cmd
}
