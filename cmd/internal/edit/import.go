package edit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/render/plain"
)

func newImport(a *cmdutil.App) *cobra.Command {
	i := &importer{app: a, redact: off}
	cmd := &cobra.Command{
		Use: "import PATH|AGENT...", Short: "Import the sessions of agents and other programs from their files", Args: cobra.MinimumNArgs(1),
		Long: `Import the sessions of agents and other programs from their files. The format is recognised
by the contents. Each line of an agent's file becomes an event, and tally export writes the
same bytes again. tally watch follows these files:

` + cmdutil.DescribeAgents() + `

The name of a format or of its agent stands for the folder of its sessions on this machine.
Other programs:

` + cmdutil.DescribeLayouts(func(l cmdutil.Layout) string { return l.In }) + `

If the path is another folder, the importable folders and files directly below it are
imported.

The source is only read. A second import adds the changes since the first. If a session
exists that was imported from another folder, or has new turns of its own, it is skipped and
named: use another --namespace for the folder, or add its content with --merge. Malformed
parts are reported with file and line, the rest is imported, and the exit code is 3.

Lines of agents are stored unchanged. --redact on removes known shapes of secrets first, as
tally watch does. Secrets that an earlier import removed are not restored: the file is named
and the exit code is 3.

Secrets in a setting of @perstack/storage are never stored in clear. Without a key such a
setting is skipped and named; with --no-secrets it is stored without the secrets.`,
		Example: cmdutil.Examples("tally import ~/.claude ~/.codex", "tally import claude codex gemini pi", "tally import ~/.claude/projects/-home-me-travel --dry-run", "tally import .tally", "tally import travel cashflow --namespace evals", "tally import chats/*.json --format ailoop", "tally import perstack --no-secrets", "tally import .tally --dry-run -o json"),
		RunE: func(cmd *cobra.Command, args []string) error {
			cmdutil.CollectLess()
			cmdutil.WorkBesideSyncs()
			return a.WithStore(cmd.Context(), func(st *tally.Store) error { return i.run(cmd.Context(), st, args) })
		},
	}
	cmd.Flags().BoolVarP(&i.dryRun, "dry-run", "n", false, "show what would be added, and write nothing")
	cmd.Flags().BoolVar(&i.merge, "merge", false, "also import into sessions that came from other folders or have new turns")
	cmd.Flags().BoolVar(&i.noSecrets, "no-secrets", false, "leave out the values of secrets in formats that mark them; each is counted and named, and the exit code is 3")
	known := slices.Concat(cmdutil.AgentFormats(), cmdutil.LayoutNames(nil))
	cmd.Flags().Var(cli.OneOf(&i.format, "form", known...), "format", "format of the folders or files: "+cmdutil.Or(known)+" (default: recognised)")
	cmd.Flags().Var(cli.OneOf(&i.redact, "how", on, off), "redact", "on: remove known shapes of secrets from the lines of agents before they are stored")
	return cmd
}

type importer struct {
	app           *cmdutil.App
	dryRun, merge bool
	noSecrets     bool
	format        string
	redact        string

	lines, redacted int // counts for files of agents
}

// Words of --redact.
const on, off = "on", "off"

// imported is the output of import, with -o json.
type imported struct {
	layouts.Report
	Lines    int           `json:"lines,omitempty"`    // lines of agents that were added
	Redacted int           `json:"redacted,omitempty"` // places with a removed secret, with --redact on
	Paths    []string      `json:"paths"`
	DryRun   bool          `json:"dryRun,omitempty"`
	Head     events.Offset `json:"head"`
}

func (i *importer) run(ctx context.Context, st *tally.Store, paths []string) error {
	var total layouts.Report
	var failed error
	paths, err := i.named(paths)
	if err != nil {
		return err
	}
	paths = i.within(paths)
	progress := cli.NewProgress(i.app.Err, i.app.Progress, "importing")
	for _, path := range paths {
		report, err := i.one(ctx, st, path, total, progress)
		total.Add(report)
		for _, p := range report.Problems {
			fmt.Fprintf(i.app.Err, "%s\n", plain.Printable(fullName(path, report.Dir, p.File)+strings.TrimPrefix(p.String(), p.File)))
		}
		if ctx.Err() != nil {
			failed = context.Cause(ctx)
			break
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", path, err))
		}
	}
	progress.Done(int64(total.Sessions), plain.Count(total.Events, "event"))
	head, err := st.Log.Head(context.WithoutCancel(ctx))
	if err != nil {
		return errors.Join(failed, err)
	}
	if failed == nil || total.Sessions > 0 || i.app.Format != cli.Text {
		if err := i.summary(total, paths, head); err != nil {
			return errors.Join(failed, err)
		}
	}
	if failed != nil && ctx.Err() != nil {
		fmt.Fprintln(i.app.Err, "Interrupted. The imported sessions are stored; run the same command again to continue.")
	}
	if failed == nil && len(total.Problems) > 0 {
		return &cli.CodeError{Code: cli.Partial, Err: fmt.Errorf("%s; everything else was imported", plain.Count(len(total.Problems), "problem"))}
	}
	return failed
}

// within replaces a folder of an unknown format by the importable folders and files directly below it. For a folder
// with files of several agents, it prints their folders.
func (i *importer) within(paths []string) []string {
	var list []string
	for _, path := range paths {
		found, isAgents := i.agentFiles(path)
		if isAgents && len(found.Files) < 2 {
			list = append(list, path)
			continue
		}
		below := i.below(path)
		if len(below) > 0 {
			fmt.Fprintf(i.app.Err, "%s holds %s to import: %s\n", plain.Printable(path), foldersOrFiles(len(below)), plain.Printable(shortList(path, below)))
		}
		if isAgents || len(below) == 0 {
			list = append(list, path)
			continue
		}
		list = append(list, below...)
	}
	return list
}

// below lists the importable folders and files directly below a folder, nothing if a layout recognises the folder
// itself.
func (i *importer) below(path string) []string {
	if _, err := layouts.Sniff(path, i.known()...); err == nil {
		return nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil // importing the folder reports it
	}
	var list []string
	for _, e := range entries {
		name := filepath.Join(path, e.Name())
		if !e.IsDir() && !e.Type().IsRegular() {
			continue
		}
		if i.knows(name) {
			list = append(list, name)
		}
	}
	return list
}

func foldersOrFiles(n int) string {
	if n == 1 {
		return "1 folder or file"
	}
	return fmt.Sprintf("%d folders or files", n)
}

// knows reports whether a folder or file can be imported.
func (i *importer) knows(path string) bool {
	if _, ok := i.agentFiles(path); ok {
		return true
	}
	_, err := layouts.Sniff(path, i.known()...)
	return err == nil
}

// shortList lists the names of paths below a folder, at most 5.
func shortList(dir string, paths []string) string {
	const most = 5
	var names []string
	for _, path := range paths[:min(most, len(paths))] {
		name, _ := filepath.Rel(dir, path)
		names = append(names, name)
	}
	if len(paths) > most {
		names = append(names, fmt.Sprintf("and %d more", len(paths)-most))
	}
	return strings.Join(names, ", ")
}

// known returns the layouts to try.
func (i *importer) known() []layouts.Layout {
	var list []layouts.Layout
	for _, l := range cmdutil.Layouts {
		switch {
		case i.format == "" || i.format == l.Name() && l.Named == nil:
			list = append(list, l.Layout)
		case i.format == l.Name():
			list = append(list, l.Named)
		}
	}
	return list
}

// signs describes how layouts are recognised.
func signs() string {
	var list []string
	for _, l := range cmdutil.Layouts {
		list = append(list, l.Sign)
	}
	return strings.Join(list, "; ")
}

// fullName returns the path of a file in a report. path is the imported path. dir is the folder to which the report's
// names are relative; it may be above or below path.
func fullName(path, dir, file string) string {
	if info, err := os.Stat(path); err == nil && !info.IsDir() {
		return filepath.Join(filepath.Dir(path), file)
	}
	if abs, err := filepath.Abs(path); err == nil {
		if rel, err := filepath.Rel(abs, dir); err == nil {
			path = filepath.Join(path, rel)
		}
	}
	return filepath.Join(path, file)
}

// one imports one folder or file. before is the sum of the reports of the earlier ones.
func (i *importer) one(ctx context.Context, st *tally.Store, path string, before layouts.Report, progress *cli.Progress) (layouts.Report, error) {
	if _, err := os.Stat(path); err != nil {
		return layouts.Report{}, err
	}
	if found, ok := i.agentFiles(path); ok {
		return i.agents(ctx, st, path, found, before, progress)
	}
	layout, err := layouts.Sniff(path, i.known()...)
	if err != nil {
		return layouts.Report{}, &cli.CodeError{Code: cli.Failed, Err: errors.New("unknown format"),
			Hint: "Files of agents are recognised by their lines; --format names the format of a file. " + signs() + ". Turns or CloudEvents, one JSON object a line, are for tally append."}
	}
	return layout.Import(ctx, st, path, layouts.ImportOptions{DryRun: i.dryRun, Merge: i.merge, NoSecrets: i.noSecrets, Progress: func(p layouts.Progress) {
		progress.At(int64(p.Sessions), int64(p.Of), fmt.Sprintf("%d of %s, %s, %s", before.Sessions+p.Sessions, plain.Count(before.Sessions+p.Of, "session"),
			plain.Count(before.Events+p.Events, "event"), plain.Bytes(before.Bytes+p.Bytes)))
	}})
}

func (i *importer) summary(r layouts.Report, paths []string, head events.Offset) error {
	if i.app.Format != cli.Text {
		return cli.WriteJSON(i.app.Out, i.app.Format, imported{r, i.lines, i.redacted, paths, i.dryRun, head})
	}
	verb := "Imported"
	if i.dryRun {
		verb = "Would import"
	}
	var parts []string
	for _, p := range []struct {
		n    int
		what string
	}{{r.Added, "new"}, {r.Changed, "changed"}, {r.Unchanged, "unchanged"}, {len(r.Refused), "refused"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	how := ""
	if len(parts) > 0 {
		how = " (" + strings.Join(parts, ", ") + ")"
	}
	i.app.Say("%s %s%s: %s added, %s read, head %v.", verb, plain.Count(r.Sessions, "session"), how, plain.Count(r.Events, "event"), plain.Bytes(r.Bytes), head)
	if i.redacted > 0 {
		verb := "made unreadable"
		if i.dryRun {
			verb = "would be " + verb
		}
		i.app.Say("%s of secrets %s.", plain.Count(i.redacted, "place"), verb)
	}
	if f := r.Files; f.Total() > 0 {
		i.app.Say("%s: %d rendered from the events, %d derived, %d kept whole.", plain.Count(f.Total(), "file"), f.Exact, f.Derived, f.Whole)
	}
	for _, n := range r.Notes {
		fmt.Fprintf(i.app.Err, "note: %s\n", plain.Printable(n.String()))
	}
	if !i.dryRun && r.Sessions > 0 {
		i.next()
	}
	return nil
}

// next prints commands to try next, with the flags that name the same store.
func (i *importer) next() {
	program, flags := cmdutil.Program(), i.app.StoreFlags()
	fmt.Fprintf(i.app.Out, "\nNext:\n  %s ls%s\n  %s show last%s\n  %s search TEXT%s\n", program, flags, program, flags, program, flags)
}
