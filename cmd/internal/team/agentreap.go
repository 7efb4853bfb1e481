package team

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/stores/tavern"
)

// newAgentEnd returns a verb that stops an agent.
func newAgentEnd(a *cmdutil.App, verb, short string, end func(*tavern.Agent, context.Context, string) error) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: verb + " ID", Short: short, Args: cobra.ExactArgs(1),
		Long: short + `. It can be read until it is purged. If
the agent cannot be stopped in its present state, the exit code is 6.

` + agentNames,
		Example: cmdutil.Examples("tally agent "+verb+" kettle", "tally agent "+verb+" kettle --reason 'nobody answers'", "tally agent "+verb+" 8f14e45f -o json"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return changed(cmd.Context(), a, args[0], func(m *member) error {
				return m.do(cmd.Context(), func(agent *tavern.Agent) error { return end(agent, cmd.Context(), reason) })
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why")
	return cmd
}
