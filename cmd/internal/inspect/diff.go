package inspect

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/internal/reads"
	"github.com/tallylog/tally/projector"
)

// differ compares two positions of a session.
type differ struct {
	app            *cmdutil.App
	stat, exitCode bool
}

func newDiff(a *cmdutil.App) *cobra.Command {
	d := &differ{app: a}
	cmd := &cobra.Command{
		Use: "diff SESSION A B", Short: "Compare the turns at two positions of a session", Args: cobra.ExactArgs(3),
		Long: `Compare the turns at two positions of a session: list turns that are only in A, and turns
that are only in B. Positions are such as @12, #3, ~1, head or a time; see tally help
positions.`,
		Example: cmdutil.Examples("tally diff last ~2 head", "tally diff travel '#3' '#9' --stat", "tally diff travel @10 head --exit-code"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.WithLook(cmd.Context(), func(st *tally.Store) error { return d.compare(cmd.Context(), st, args) })
		},
	}
	cmd.Flags().BoolVar(&d.stat, "stat", false, "only the numbers")
	cmd.Flags().BoolVar(&d.exitCode, "exit-code", false, "exit 1 if the threads differ, 0 if not")
	return cmd
}

func (d *differ) compare(ctx context.Context, st *tally.Store, args []string) error {
	s, err := d.app.Session(ctx, st, args[0])
	if err != nil {
		return err
	}
	head, hole := s.Outline(ctx)
	if err := projector.Tolerate(hole); err != nil {
		return err
	}
	c, err := reads.Compare(ctx, head, hole, args[1], args[2])
	if err == nil {
		err = d.print(ctx, c, args)
	}
	if err != nil || !d.exitCode {
		return err
	}
	if same, err := c.From.Equal(ctx, c.To); same || err != nil {
		return err
	}
	return cli.Silent(1)
}

func (d *differ) print(ctx context.Context, c reads.Comparison, args []string) (err error) {
	switch {
	case d.app.Format != cli.Text:
		var out reads.Diff
		if out, err = c.Read(ctx, 0); err == nil {
			err = cli.WriteJSON(d.app.Out, d.app.Format, out)
		}
	case d.stat:
		_, err = fmt.Fprintf(d.app.Out, "-%d +%d turns\n", c.Leaves.Count, c.Returns.Count)
	case c.Leaves.Count+c.Returns.Count > 0:
		if err = d.app.ListTurns(ctx, "only at "+args[1], "-", c.Leaves); err == nil {
			err = d.app.ListTurns(ctx, "only at "+args[2], "+", c.Returns)
		}
	}
	return err
}
