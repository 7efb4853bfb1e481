package keep

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/app"
	"github.com/tallylog/tally/formats"
	"github.com/tallylog/tally/internal/cli"
	"github.com/tallylog/tally/internal/plain"
	"github.com/tallylog/tally/stores/ailoop/ailoopdir"
	"github.com/tallylog/tally/stores/errata/erratadir"
	"github.com/tallylog/tally/stores/evals/tallydir"
)

func newExport(a *app.App) *cobra.Command {
	x := &exporter{app: a}
	cmd := &cobra.Command{
		Use: "export SESSION|--all -o DIR", Short: "Write sessions as files in the layout of another program", Args: cobra.MaximumNArgs(1),
		Long: `Write sessions as files in the layout of another program. The files are rendered
from the state of the log; what was imported comes out byte for byte.

  tallydir   conversations, each a folder, as tally-evals has them
  errata     panels, each a folder in sessions/, the prompts and the recipes, as
             errata has them; with --redact only what may be shared: neither
             prompts nor answers, previews, files or notes
  ailoop     histories, each a file <id>.json, as ailoop has them

--all exports every session of the namespace. What was imported from one folder
goes to DIR itself; from several, to DIR/<name of the folder>/. --root chooses
one of them. Files that are there with the same bytes are left alone, others are
replaced, and nothing is deleted.`,
		Example: app.Examples("tally export travel --format tallydir -o out", "tally export --all --format tallydir -o out", "tally export history/support-42 --format ailoop -o out", "tally export --all --format errata --redact -o shared"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if x.all == (len(args) == 1) {
				return cli.Usagef("give a SESSION, or --all without one")
			}
			if x.root != "" && !x.all {
				return cli.Usagef("--root goes with --all")
			}
			if x.layout() == nil {
				return cli.Usagef("--format %q: want tallydir, errata or ailoop", x.format)
			}
			if x.redact && x.format != erratadir.Format {
				return cli.Usagef("--redact goes with --format errata")
			}
			if x.dir == "" {
				return cli.Usagef("-o DIR is missing: the folder to write to")
			}
			return a.WithExisting(cmd.Context(), func(st *tally.Store) error { return x.run(cmd.Context(), st, args) })
		},
	}
	cmd.Flags().BoolVar(&x.all, "all", false, "every session")
	cmd.Flags().StringVar(&x.root, "root", "", "with --all, only what was imported from the folder of this name")
	cmd.Flags().StringVar(&x.format, "format", tallydir.Format, "layout of the files: tallydir, errata or ailoop")
	cmd.Flags().BoolVar(&x.redact, "redact", false, "with --format errata, leave out what persons and models wrote")
	// Here -o is the folder, as everywhere where a command writes files; the form of
	// the summary is --output.
	cmd.Flags().StringVarP(&x.dir, "out", "o", "", "folder to write to")
	cmd.Flags().Var(x.summary.Flag(), "output", "form of the summary: text, json or jsonl")
	return cmd
}

type exporter struct {
	app               *app.App
	all, redact       bool
	root, format, dir string
	summary           cli.Format
}

// layout returns the layout that was asked for, nil if there is none of that name.
func (x *exporter) layout() formats.Layout {
	for _, l := range []formats.Layout{tallydir.Layout{}, erratadir.Layout{Redact: x.redact}, ailoopdir.Layout{}} {
		if l.Name() == x.format {
			return l
		}
	}
	return nil
}

func (x *exporter) run(ctx context.Context, st *tally.Store, args []string) (err error) {
	o := formats.ExportOptions{All: x.all, Root: x.root}
	if len(args) == 1 {
		s, err := app.Session(ctx, st, args[0])
		if err != nil {
			return err
		}
		o.Session = s.ID()
	}
	progress := cli.NewProgress(x.app.Err, x.app.Progress, "exporting")
	o.Progress = func(p formats.Progress) {
		progress.At(int64(p.Sessions), int64(p.Of), fmt.Sprintf("%d of %s, %s", p.Sessions, plain.Count(p.Of, "session"), plain.Count(p.Files, "file")))
	}
	dir, err := formats.OpenDir(x.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	report, err := formats.Export(ctx, st, x.layout(), dir, o)
	progress.Done(int64(report.Sessions), plain.Count(report.Files.Total(), "file"))
	for _, p := range report.Problems {
		fmt.Fprintf(x.app.Err, "%s\n", plain.Printable(p.String()))
	}
	if err != nil {
		return err
	}
	if x.summary == cli.JSON || x.summary == cli.JSONL {
		err = cli.WriteJSON(x.app.Out, x.summary, report)
	} else {
		for _, n := range report.Notes {
			fmt.Fprintf(x.app.Err, "note: %s\n", plain.Printable(n.String()))
		}
		_, err = fmt.Fprintf(x.app.Out, "Exported %s to %s: %d written, %d there already.\n", plain.Count(report.Sessions, "session"), x.dir, report.Written, report.Kept)
	}
	if err == nil && len(report.Problems) > 0 {
		return cli.Silent(cli.Partial)
	}
	return err
}
