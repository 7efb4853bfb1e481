package team

import (
	"github.com/spf13/cobra"

	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/stores/tavern"
)

func newFlowMove(a *cmdutil.App) *cobra.Command {
	return &cobra.Command{
		Use: "move ID STATE", Short: "Move a flow to another state", Args: cobra.ExactArgs(2),
		Long: `Move a flow to another state by hand. If the template does not allow the move, the error
lists the allowed states and the exit code is 6. The exit code is also 6 if a worker has
claimed the flow, if the flow is over, or if a flow that its state started is not over.

` + flowNames,
		Example: cmdutil.Examples("tally flow move release-7 test", "tally flow move 01a7 'given up'", "tally flow move release-7 shipped -o json"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var from *tavern.FlowState // read once: a repeated move has the same origin
			return onFlow(cmd.Context(), a, args[0], func(f *tavern.Flow) (err error) {
				if from == nil {
					if from, err = f.State(cmd.Context()); err != nil {
						return err
					}
				}
				return f.MoveFrom(cmd.Context(), from, args[1])
			})
		},
	}
}
