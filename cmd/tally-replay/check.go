package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/app"
	"github.com/tallylog/tally/internal/cli"
	"github.com/tallylog/tally/projector"
)

func newVerify(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use: "verify", Short: "Fold everything from zero and compare it with what is stored", Args: cobra.NoArgs,
		Long: `Read the whole log, fold every session that has snapshots from zero and compare.
Nothing is changed. A difference or a damaged record is named, and the exit code
is 5. Differing snapshots are mended by rebuild; the log itself is the truth.`,
		Example: app.Examples("tally-replay verify", "tally-replay verify -o json", "tally-replay verify --progress plain"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.WithStore(cmd.Context(), func(st *tally.Store) error {
				head, err := st.Log.Head(cmd.Context())
				if err != nil {
					return err
				}
				p := cli.NewProgress(a.Err, a.Progress, "verifying")
				v, err := st.Loader().Verify(cmd.Context(), func(n int) { p.At(int64(n), int64(head), cli.Count(n, "record")) })
				p.Done(int64(v.Records), cli.Count(v.Records, "record"))
				if err != nil {
					return err
				}
				return report(a, v)
			})
		},
	}
}

func report(a *app.App, v projector.Verified) error {
	if a.Format != cli.Text {
		if err := cli.WriteJSON(a.Out, a.Format, v); err != nil {
			return err
		}
	} else {
		for _, f := range v.Findings {
			fmt.Fprintf(a.Out, "%s %v: %s\n", cli.Printable(f.Subject), f.Offset, f.What)
		}
		verdict := "all views match the log"
		if len(v.Findings) > 0 {
			verdict = cli.Count(len(v.Findings), "finding")
		}
		fmt.Fprintf(a.Out, "%s, %s, %s: %s\n", cli.Count(v.Records, "record"), cli.Count(v.Sessions, "session"), cli.Count(v.Snapshots, "snapshot"), verdict)
	}
	if len(v.Findings) > 0 {
		return cli.Silent(cli.Integrity)
	}
	return nil
}

// rebuilt is what rebuild prints with -o json.
type rebuilt struct {
	Snapshots int `json:"snapshots"`
}

func newRebuild(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use: "rebuild", Short: "Fold every session anew and replace all snapshots", Args: cobra.NoArgs,
		Example: app.Examples("tally-replay rebuild", "tally-replay rebuild --progress json", "tally-replay rebuild -o json"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.WithStore(cmd.Context(), func(st *tally.Store) error {
				if st.Snapshots() == nil {
					return &cli.CodeError{Code: cli.Failed, Err: fmt.Errorf("this store keeps no snapshots")}
				}
				p := cli.NewProgress(a.Err, a.Progress, "rebuilding")
				n, err := st.Loader().Rebuild(cmd.Context(), projector.Policy{}, func(n int) { p.At(int64(n), -1, cli.Count(n, "session")) })
				p.Done(int64(n), cli.Count(n, "snapshot"))
				if err != nil {
					return err
				}
				if a.Format != cli.Text {
					return cli.WriteJSON(a.Out, a.Format, rebuilt{n})
				}
				_, err = fmt.Fprintf(a.Out, "Rebuilt %s; shorter sessions are folded when they are read.\n", cli.Count(n, "snapshot"))
				return err
			})
		},
	}
}
