package admin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/cmd/internal/prices"
	"github.com/tallylog/tally/cmd/internal/spend"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/tavern"
)

func newExport(a *cmdutil.App) *cobra.Command {
	x := &exporter{app: a}
	cmd := &cobra.Command{
		Use: "export SESSION|--all -C DIR", Short: "Write sessions as pages for people, or as files of another program", Args: cobra.MaximumNArgs(1),
		Long: `Write sessions as pages for people, or as files in the layout of another program.

  markdown   a page for each session, <id>.md
  html       the same as <id>.html: nothing beside it is needed, nothing in it
             runs or asks anything of a network
` + cmdutil.DescribeLayouts(func(l cmdutil.Layout) string { return l.Out }) + `
  ` + strings.Join(cmdutil.AgentFormats(), ", ") + `
                 the files that the agent wrote, as they were read last, at
                 their names below the folder of its sessions

A page has the turns in effect, with reasoning and the calls of tools folded, the
runs and the costs. What a turn contains is shown as text, control characters and
unseen ones included; images and files are named, not shown. --at shows the
session as of a position, --rewound also what is not in effect: turns that were
rewound, late or replaced, and the rewinds. Without -C the page of one session
goes to standard output.

Files of a layout are rendered from the state of the log; what was imported comes
out byte for byte. A session of a kind that a layout has no files for is refused.

Files of agents are byte for byte what came, whatever was rewound, also after the
agent has deleted them. One of which something was redacted, or never came, is
written all the same and named, and the exit code is 3. No file that is there and
has other bytes is replaced: an agent may go on with it.

Without --format a session is written in the layout that it came from; with --all
each in its own, and where there are several, in DIR/<format>/. If nothing can be
written, the exit code is 3.

--all exports every session of the namespace: as pages all, in a layout those
that it has files for; with --layer only what is of the project, which may travel with
its repository, or only what is personal. What was imported from one folder goes to DIR itself; from
several, to DIR/<name of the folder>/. --root chooses one of them. Files that are
there with the same bytes are left alone, others are replaced, and nothing is
deleted.

-o is the form of the summary, as everywhere; any other word that it is given is
taken for DIR.`,
		Example: cmdutil.Examples("tally export last --format markdown", "tally export travel --format html -C pages --at '#5'", "tally export --all --format tallydir -C out",
			"tally export --all --format claude-code -C out", "tally export history/support-42 --format ailoop -C out", "tally export --all --format errata --redact -C shared"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := x.check(args); err != nil {
				return err
			}
			return a.WithExisting(cmd.Context(), func(st *tally.Store) error { return x.run(cmd.Context(), st, args) })
		},
	}
	cmd.Flags().BoolVar(&x.all, "all", false, "every session")
	cmd.Flags().Var(cli.OneOf(&x.layer, "layer", tavern.LayerProject, tavern.LayerPersonal), "layer", "only what is of this layer: project or personal")
	cmd.Flags().StringVar(&x.root, "root", "", "with --all, only what was imported from the folder of this name")
	known := slices.Concat(cmdutil.AgentFormats(), cmdutil.LayoutNames(nil))
	cmd.Flags().Var(cli.OneOf(&x.format, "form", slices.Concat([]string{markdown, html}, known)...), "format", "pages, markdown or html, or a layout: "+cmdutil.Or(known)+"; default that which a session came from")
	cmd.Flags().BoolVar(&x.redact, "redact", false, "with --format "+cmdutil.Or(redacting())+", leave out what persons and models wrote")
	cmd.Flags().StringVar(&x.at, "at", "", "with a page of one session, its position; default head")
	cmd.Flags().BoolVar(&x.rewound, "rewound", false, "with pages, also what is not in effect: turns rewound, late or replaced, and the rewinds")
	cmd.Flags().StringVarP(&x.dir, "dir", "C", "", "folder to write to")
	cmd.Flags().VarP(summaryOrDir{a.Format.Flag(), &x.dir}, "output", "o", "form of the summary: text, json or jsonl")
	return cmd
}

type exporter struct {
	app           *cmdutil.App
	all, redact   bool
	rewound       bool
	root, at, dir string
	format        string
	layer         tavern.Layer
	prices        prices.Table // of pages
}

// summaryOrDir is -o: the form of the summary, or, as before there was -C, the folder.
type summaryOrDir struct {
	pflag.Value
	dir *string
}

// Set implements pflag.Value.
func (f summaryOrDir) Set(s string) error {
	if f.Value.Set(s) != nil {
		*f.dir = s
	}
	return nil
}

// isPages reports whether pages were asked for.
func (x *exporter) isPages() bool { return slices.Contains([]string{markdown, html}, x.format) }

// check refuses flags that do not go together.
func (x *exporter) check(args []string) error {
	switch {
	case x.all == (len(args) == 1):
		return cli.Usagef("give a SESSION, or --all without one")
	case x.root != "" && (!x.all || x.isPages() || x.isAgents()):
		return cli.Usagef("--root goes with --all and a layout")
	case x.layer != "" && x.isAgents():
		return cli.Usagef("--layer goes with pages and layouts of stores: files of agents are the vendor's")
	case x.redact && !slices.Contains(redacting(), x.format):
		return cli.Usagef("--redact goes with --format %s", cmdutil.Or(redacting()))
	case x.rewound && !x.isPages():
		return cli.Usagef("--rewound goes with --format markdown or html")
	case x.at != "" && (!x.isPages() || x.all):
		return cli.Usagef("--at goes with the page of one session: --format markdown or html")
	case x.dir == "" && (!x.isPages() || x.all):
		return cli.Usagef("-C DIR is missing: the folder to write to")
	case x.dir == "" && x.app.Format != cli.Text:
		return cli.Usagef("-o %s is the form of the summary, and without -C DIR there is none: the page goes to standard output", x.app.Format)
	}
	return nil
}

// form returns what writes the files.
func (x *exporter) form(st *tally.Store) layouts.Renderer {
	if a, ok := x.agent(); ok {
		return agentForm{a, st.Log}
	}
	layout, ok := cmdutil.LayoutNamed(x.format)
	switch {
	case !ok:
		return pages{x.format, x.rewound, x.prices}
	case x.redact:
		return layout.Redacted
	}
	return layout.Layout
}

// redacting lists the layouts that --redact goes with.
func redacting() []string {
	return cmdutil.LayoutNames(func(l cmdutil.Layout) bool { return l.Redacted != nil })
}

func (x *exporter) run(ctx context.Context, st *tally.Store, args []string) error {
	if st.Namespace() == events.PersonalNamespace {
		return &events.PersonalError{Where: "an export"}
	}
	if x.isPages() {
		table, err := spend.Prices(os.Getenv)
		if err != nil {
			return err
		}
		x.prices = table
	}
	o := layouts.ExportOptions{All: x.all, Root: x.root, Any: x.isPages()}
	if len(args) == 1 {
		s, err := x.app.Session(ctx, st, args[0])
		if err != nil {
			return err
		}
		if err := x.isOfLayer(ctx, st, s); err != nil {
			return err
		}
		if o.State, err = s.Load(ctx, x.at); projector.Tolerate(err) != nil {
			return err
		}
		if err := x.choose(ctx, st, o.State); err != nil {
			return err
		}
		o.Session = s.ID()
	}
	if x.dir == "" {
		return pages{x.format, x.rewound, x.prices}.print(ctx, x.app, st, o.State, x.app.Out)
	}
	if x.all {
		return x.exportAll(ctx, st, o)
	}
	return x.export(ctx, st, o)
}

// isOfLayer refuses a session that is of another layer than that which was asked for.
func (x *exporter) isOfLayer(ctx context.Context, st *tally.Store, s *tally.Session) error {
	if x.layer == "" {
		return nil
	}
	has, err := tavern.LayerOnly(st, x.layer).Has(ctx, s.Subject())
	if err == nil && !has {
		err = &cli.CodeError{Code: cli.NotFound, Err: fmt.Errorf("%s is not of the layer %s", s.Subject(), x.layer)}
	}
	return err
}

// source is what is exported from: all of the store, or what is of a layer.
func (x *exporter) source(st *tally.Store) layouts.Source {
	if x.layer == "" {
		return st
	}
	return tavern.LayerOnly(st, x.layer)
}

// export writes to the folder and says what was written.
func (x *exporter) export(ctx context.Context, st *tally.Store, o layouts.ExportOptions) error {
	report, err := x.write(ctx, st, o)
	if err != nil {
		for _, p := range report.Problems {
			fmt.Fprintf(x.app.Err, "%s\n", plain.Printable(p.String()))
		}
		return err
	}
	return x.conclude(ctx, st, report)
}

// write writes to the folder.
func (x *exporter) write(ctx context.Context, st *tally.Store, o layouts.ExportOptions) (report layouts.Report, err error) {
	progress := cli.NewProgress(x.app.Err, x.app.Progress, "exporting")
	o.Progress = func(p layouts.Progress) {
		progress.At(int64(p.Sessions), int64(p.Of), fmt.Sprintf("%d of %s, %s", p.Sessions, plain.Count(p.Of, "session"), plain.Count(p.Files, "file")))
	}
	dir, err := layouts.OpenDir(x.dir)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	report, err = layouts.Export(ctx, x.source(st), x.form(st), x.storage(dir), o)
	progress.Done(int64(report.Sessions), plain.Count(report.Files.Total(), "file"))
	return report, err
}

// conclude says what was written. Nothing of sessions that are there is no success.
func (x *exporter) conclude(ctx context.Context, st *tally.Store, report layouts.Report) (err error) {
	if report.Sessions == 0 && report.Files.Total() == 0 && len(report.Problems) == 0 {
		for info, err := range x.source(st).Subjects(ctx, events.KindSession) {
			if err != nil {
				return err
			}
			report.Problems = append(report.Problems, layouts.Problem{File: x.dir, Reason: fmt.Sprintf("nothing was written: no session has files for %s, nor has %s", x.format, cli.ID(info.Subject.ID))})
			break
		}
	}
	for _, p := range report.Problems {
		fmt.Fprintf(x.app.Err, "%s\n", plain.Printable(p.String()))
	}
	if x.app.Format != cli.Text {
		err = cli.WriteJSON(x.app.Out, x.app.Format, report)
	} else {
		err = x.say(report)
	}
	if err == nil && len(report.Problems) > 0 {
		return cli.Silent(cli.Partial)
	}
	return err
}

// say sums an export up.
func (x *exporter) say(report layouts.Report) error {
	for _, n := range report.Notes {
		fmt.Fprintf(x.app.Err, "note: %s\n", plain.Printable(n.String()))
	}
	cannot := ""
	if n := len(report.Refused); n > 0 {
		cannot = fmt.Sprintf("; %s cannot be", plain.Count(n, "session"))
	}
	return x.app.Say("Exported %s to %s: %d written, %d there already%s.", plain.Count(report.Sessions, "session"), x.dir, report.Written, report.Kept, cannot)
}
