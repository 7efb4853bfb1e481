package team

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/stores/tavern"
)

func newFlowRecover(a *cmdutil.App) *cobra.Command {
	return &cobra.Command{
		Use: "recover ID", Short: "Apply the recovery rule of a flow that has lost its worker", Args: cobra.ExactArgs(1),
		Long: `Apply the recovery rule of a flow that has lost its worker. The rule of the present state
applies when the worker's lease has ended, or when a flow that the state started did not
complete. If no rule applies, nothing is written. tally serve and tally daemon do this by
themselves.

` + flowNames,
		Example: cmdutil.Examples("tally flow recover release-7", "tally flow recover 01a7", "tally flow recover 01a7 -o json"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return onFlow(cmd.Context(), a, args[0], func(f *tavern.Flow) error {
				why, err := f.Recover(cmd.Context())
				if err == nil && why == "" {
					why = "nothing is due"
				}
				if err == nil {
					fmt.Fprintln(a.Err, plain.Printable(why))
				}
				return err
			})
		},
	}
}
