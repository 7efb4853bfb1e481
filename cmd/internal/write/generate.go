package write

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally/cmd/internal/app"
	"github.com/tallylog/tally/internal/cli"
	"github.com/tallylog/tally/internal/gentree"
)

// newGenerate makes folders to try imports on. It is hidden: nobody's sessions
// come from it.
func newGenerate(a *app.App) *cobra.Command {
	var o gentree.Options
	cmd := &cobra.Command{
		Use: "generate DIR", Short: "Write a folder of made-up conversations, for tests and measurements", Args: cobra.ExactArgs(1), Hidden: true,
		RunE: func(_ *cobra.Command, args []string) error {
			stats, err := gentree.Write(args[0], o)
			if err != nil {
				return err
			}
			if a.Format != cli.Text {
				return cli.WriteJSON(a.Out, a.Format, stats)
			}
			_, err = fmt.Fprintf(a.Out, "Wrote %+v to %s.\n", stats, args[0])
			return err
		},
	}
	cmd.Flags().Uint64Var(&o.Seed, "seed", 1, "the same seed gives the same folder")
	cmd.Flags().IntVar(&o.Sessions, "sessions", 100, "number of conversations")
	cmd.Flags().IntVar(&o.Turns, "turns", 0, "turns of each (default: varying)")
	cmd.Flags().BoolVar(&o.Odd, "odd", false, "odd spellings, file endings and stray files")
	return cmd
}
