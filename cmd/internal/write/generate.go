package write

import (
	"errors"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally/cmd/internal/app"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/internal/testkit/gentree"
)

// generated is what generate prints with -o json.
type generated struct {
	Sessions int   `json:"sessions"`
	Turns    int   `json:"turns"`
	Files    int   `json:"files"`
	Bytes    int64 `json:"bytes"`
}

// newGenerate makes folders to try imports on.
func newGenerate(a *app.App) *cobra.Command {
	var o gentree.Options
	cmd := &cobra.Command{
		Use: "generate DIR", Short: "Write a folder of made-up conversations, for tests and measurements", Args: cobra.ExactArgs(1),
		Long: `Write a folder of made-up conversations in the layout of tally-evals, to try imports
and to measure. The folder must be empty or not there yet.`,
		Example: app.Examples("tally generate made-up", "tally generate large --sessions 2000", "tally generate odd --odd --seed 7 && tally import odd"),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := isEmpty(args[0]); err != nil {
				return err
			}
			stats, err := gentree.Write(args[0], o)
			if err != nil {
				return err
			}
			if a.Format != cli.Text {
				return cli.WriteJSON(a.Out, a.Format, generated(stats))
			}
			return a.Say("Wrote %s with %s to %s: %s in %s.", plain.Count(stats.Sessions, "conversation"), plain.Count(stats.Turns, "turn"),
				args[0], plain.Bytes(stats.Bytes), plain.Count(stats.Files, "file"))
		},
	}
	cmd.Flags().Uint64Var(&o.Seed, "seed", 1, "the same seed gives the same folder")
	cmd.Flags().IntVar(&o.Sessions, "sessions", 100, "number of conversations")
	cmd.Flags().IntVar(&o.Turns, "turns", 0, "turns of each (default: varying)")
	cmd.Flags().BoolVar(&o.Odd, "odd", false, "odd spellings, file endings and stray files")
	return cmd
}

// isEmpty refuses a folder that has something in it: what is generated would mix with that.
func isEmpty(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && len(entries) == 0:
		return nil
	case err != nil:
		return err
	}
	return cli.Usagef("%s is not empty: what is generated goes into a folder of its own", dir)
}
