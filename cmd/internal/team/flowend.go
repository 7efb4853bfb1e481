package team

import (
	"github.com/spf13/cobra"

	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/stores/tavern"
)

func newFlowFail(a *cmdutil.App) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "fail ID", Short: "End a flow as failed", Args: cobra.ExactArgs(1),
		Long: `End a flow as failed, in any state and also if a worker has claimed it. If the flow is over
already, the exit code is 6.

` + flowNames,
		Example: cmdutil.Examples("tally flow fail release-7 --reason 'no longer wanted'", "tally flow fail 01a7", "tally flow fail 01a7 -o json"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return onFlow(cmd.Context(), a, args[0], func(f *tavern.Flow) error { return f.Fail(cmd.Context(), reason) })
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "reason")
	return cmd
}

func newFlowEnd(a *cmdutil.App) *cobra.Command {
	return &cobra.Command{
		Use: "end ID [FILE|-]", Short: "Complete a flow that is in a final state", Args: cobra.RangeArgs(1, 2),
		Long: `Complete a flow that is in a final state of its template, with the JSON of a file or of
standard input as its result. In another state, or if a worker has claimed the flow, the exit
code is 6.

` + flowNames,
		Example: cmdutil.Examples("tally flow end release-7", "tally flow end 01a7 result.json", "echo '{\"url\": \"...\"}' | tally flow end 01a7 -"),
		RunE: func(cmd *cobra.Command, args []string) error {
			result, err := value(a, args[1:])
			if err != nil {
				return err
			}
			return onFlow(cmd.Context(), a, args[0], func(f *tavern.Flow) error { return f.End(cmd.Context(), result) })
		},
	}
}
