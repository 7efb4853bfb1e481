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
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/prices"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/internal/spend"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/tavern"
)

func newExport(a *cmdutil.App) *cobra.Command {
	x := &exporter{app: a}
	cmd := &cobra.Command{
		Use: "export SESSION|--all -C DIR", Short: "Write sessions as pages for people, or as files of another program", Args: cobra.MaximumNArgs(1),
		Long: `Write sessions as pages for people, or as files of another program.

  markdown   a page for each session, <id>.md
  html       a page for each session, <id>.html, in a single file: it runs no
             scripts and loads nothing from the network
` + cmdutil.DescribeLayouts(func(l cmdutil.Layout) string { return l.Out }) + `
  ` + strings.Join(cmdutil.AgentFormats(), ", ") + `
                 the files that the agent wrote, as they were read last, under
                 their names below the folder of its sessions

A page has the turns in effect, with reasoning and tool calls folded, the runs and
the costs. All content is shown as text, control and invisible characters included.
Images and files are named, not shown. --at shows the session as of a position.
--rewound also shows turns that were rewound, stale or replaced, and the rewinds.
Without -C, the page of one session goes to standard output.

Files of a layout are rendered from the log. Imported files come out byte for byte. If
a layout has no files for sessions of a kind, the session is refused.

Files of agents are written byte for byte as they were read, also after a rewind, and
after the agent has deleted them. If parts of a file were redacted or never read, the
file is written and named in a message, and the exit code is 3. An existing file with
other content is not replaced, because the agent may still write to it.

Without --format, a session is written in the format that it came from. With --all,
each session is; if there are several formats, each gets a folder DIR/<format>/. If
nothing can be written, the exit code is 3.

--all exports every session of the namespace that the format has files for. --layer
limits that to sessions of the project, which may travel with its repository, or to
personal ones. Sessions that were imported from one folder go to DIR itself; from
several folders, to DIR/<name of the folder>/. --root selects one of these folders.
Existing files with the same content are left alone, others are replaced, and no file
is deleted.

-o is the format of the summary, as for other commands. Any other value of -o is taken
as DIR.`,
		Example: cmdutil.Examples("tally export last --format markdown", "tally export travel --format html -C pages --at '#5'", "tally export --all --format tallydir -C out",
			"tally export --all --format claude-code -C out", "tally export history/support-42 --format ailoop -C out", "tally export --all --format errata --redact -C shared"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := x.check(args); err != nil {
				return err
			}
			open := a.WithLook
			if x.all {
				open = a.WithExisting
			}
			return open(cmd.Context(), func(st *tally.Store) error { return x.run(cmd.Context(), st, args) })
		},
	}
	cmd.Flags().BoolVar(&x.all, "all", false, "every session")
	cmd.Flags().Var(cli.OneOf(&x.layer, "layer", tavern.LayerProject, tavern.LayerPersonal), "layer", "only sessions of this layer: project or personal")
	cmd.Flags().StringVar(&x.root, "root", "", "with --all, only sessions that were imported from the folder of this name")
	known := slices.Concat(cmdutil.AgentFormats(), cmdutil.LayoutNames(nil))
	cmd.Flags().Var(cli.OneOf(&x.format, "form", slices.Concat([]string{markdown, html}, known)...), "format", "pages, markdown or html, or a layout: "+cmdutil.Or(known)+"; default the format that a session came from")
	cmd.Flags().BoolVar(&x.redact, "redact", false, "with --format "+cmdutil.Or(redacting())+", leave out text by people and models")
	cmd.Flags().StringVar(&x.at, "at", "", "position, for the page of one session; default head")
	cmd.Flags().BoolVar(&x.rewound, "rewound", false, "with pages, also turns that were rewound, stale or replaced, and the rewinds")
	cmd.Flags().StringVarP(&x.dir, "dir", "C", "", "folder to write to")
	cmd.Flags().VarP(summaryOrDir{a.Format.Flag(), &x.dir}, "output", "o", "format of the summary: text, json or jsonl")
	return cmd
}

type exporter struct {
	app           *cmdutil.App
	all, redact   bool
	rewound       bool
	root, at, dir string
	format        string
	layer         tavern.Layer
	prices        prices.Table // prices for pages
}

// summaryOrDir is the value of -o: the format of the summary, or a folder, as before the flag -C existed.
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

// isPages reports whether pages are exported.
func (x *exporter) isPages() bool { return slices.Contains([]string{markdown, html}, x.format) }

// check returns an error for flags that exclude each other.
func (x *exporter) check(args []string) error {
	switch {
	case x.all == (len(args) == 1):
		return cli.Usagef("name a SESSION, or use --all")
	case x.root != "" && (!x.all || x.isPages() || x.isAgents()):
		return cli.Usagef("--root needs --all and a layout")
	case x.layer != "" && x.isAgents():
		return cli.Usagef("--layer works with pages and layouts of stores, not with files of agents")
	case x.redact && !slices.Contains(redacting(), x.format):
		return cli.Usagef("--redact needs --format %s", cmdutil.Or(redacting()))
	case x.rewound && !x.isPages():
		return cli.Usagef("--rewound needs --format markdown or html")
	case x.at != "" && (!x.isPages() || x.all):
		return cli.Usagef("--at needs one session and --format markdown or html")
	case x.dir == "" && (!x.isPages() || x.all):
		return cli.Usagef("missing -C DIR, the folder to write to")
	case x.dir == "" && x.app.Format != cli.Text:
		return cli.Usagef("-o %s formats the summary, which needs -C DIR: without it, the page goes to standard output", x.app.Format)
	}
	return nil
}

// form returns the renderer of the files.
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

// redacting lists the layouts that support --redact.
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

// isOfLayer returns an error if the session is not in the layer of --layer.
func (x *exporter) isOfLayer(ctx context.Context, st *tally.Store, s *tally.Session) error {
	if x.layer == "" {
		return nil
	}
	has, err := tavern.LayerOnly(st, x.layer).Has(ctx, s.Subject())
	if err == nil && !has {
		err = &cli.CodeError{Code: cli.NotFound, Err: fmt.Errorf("%s is not in the layer %s", s.Subject(), x.layer)}
	}
	return err
}

// source returns the source of the export: the whole store, or one layer of it.
func (x *exporter) source(st *tally.Store) layouts.Source {
	if x.layer == "" {
		return st
	}
	return tavern.LayerOnly(st, x.layer)
}

// export writes the files, and prints a summary.
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

// write writes the files.
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

// conclude prints a summary. If there are sessions but none was written, that is a problem.
func (x *exporter) conclude(ctx context.Context, st *tally.Store, report layouts.Report) (err error) {
	if report.Sessions == 0 && report.Files.Total() == 0 && len(report.Problems) == 0 {
		for info, err := range x.source(st).Subjects(ctx, events.KindSession) {
			if err != nil {
				return err
			}
			report.Problems = append(report.Problems, layouts.Problem{File: x.dir, Reason: fmt.Sprintf("nothing was written: format %s has no files for %s, nor for any other session", x.format, cli.ID(info.Subject.ID))})
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

// say prints a summary as text.
func (x *exporter) say(report layouts.Report) error {
	for _, n := range report.Notes {
		fmt.Fprintf(x.app.Err, "note: %s\n", plain.Printable(n.String()))
	}
	cannot := ""
	if n := len(report.Refused); n > 0 {
		cannot = fmt.Sprintf("; %s not supported", plain.Count(n, "session"))
	}
	return x.app.Say("Exported %s to %s: %d written, %d there already%s.", plain.Count(report.Sessions, "session"), x.dir, report.Written, report.Kept, cannot)
}
