package inspect

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/projector"
)

// differing is what diff prints with -o json.
type differing struct {
	Leaves  []projector.TurnAt `json:"leaves"`  // in A and not in B
	Returns []projector.TurnAt `json:"returns"` // in B and not in A
}

func newDiff(a *cmdutil.App) *cobra.Command {
	var stat, exitCode bool
	cmd := &cobra.Command{
		Use: "diff SESSION A B", Short: "Compare the turns at two positions of a session", Args: cobra.ExactArgs(3),
		Long: `Compare the turns at two positions of a session: list turns that are only in A, and turns
that are only in B. Positions are such as @12, #3, ~1, head or a time; see tally help
positions.`,
		Example: cmdutil.Examples("tally diff last ~2 head", "tally diff travel '#3' '#9' --stat", "tally diff travel @10 head --exit-code"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.WithExisting(cmd.Context(), func(st *tally.Store) error {
				s, err := a.Session(cmd.Context(), st, args[0])
				if err != nil {
					return err
				}
				from, err := s.Load(cmd.Context(), args[1])
				if err != nil {
					return err
				}
				to, err := s.Load(cmd.Context(), args[2])
				if err != nil {
					return err
				}
				leaves, returns := projector.Changes(from.Threads, to.Threads)
				switch {
				case a.Format != cli.Text:
					err = cli.WriteJSON(a.Out, a.Format, differing{cli.NonNil(leaves), cli.NonNil(returns)})
				case stat:
					_, err = fmt.Fprintf(a.Out, "-%d +%d turns\n", len(leaves), len(returns))
				case len(leaves)+len(returns) > 0:
					a.ListTurns("only at "+args[1], "-", leaves)
					a.ListTurns("only at "+args[2], "+", returns)
				}
				if err == nil && exitCode && from.Threads.Hash() != to.Threads.Hash() {
					return cli.Silent(1)
				}
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&stat, "stat", false, "only the numbers")
	cmd.Flags().BoolVar(&exitCode, "exit-code", false, "exit 1 if the threads differ, 0 if not")
	return cmd
}
