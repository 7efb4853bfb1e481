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
		Use: "import PATH|AGENT...", Short: "Import what agents and other programs keep in folders and files", Args: cobra.MinimumNArgs(1),
		Long: `Import what agents and other programs keep in folders and files. The format is
recognised by what they hold. Of agents, each line becomes an event, and what is
there now comes out again byte for byte (tally export); tally watch follows them:

` + cmdutil.DescribeAgents() + `

The name of one of these, or of its agent, stands for the folder in which it keeps its
sessions on this machine. Other programs:

` + cmdutil.DescribeLayouts(func(l cmdutil.Layout) string { return l.In }) + `

Of a folder that is none of these, what is directly below it and is one is imported.

The source is only read. Importing again adds what has changed since and nothing
else. A session that exists already but came from another place, or was appended
to meanwhile, is left alone and named: give the folder a --namespace of its own,
or take its content with --merge. A malformed piece is reported with file and
line; the rest goes in, and the exit code is 3.

Lines of agents are stored as they are; --redact on takes out known shapes of secrets
first, as tally watch does. A file of which the store has redacted lines from then is
named, and the exit code is 3: what was taken out is not put in by another import.

The secrets that a setting of @perstack/storage holds are never stored in clear:
without a key such a setting is left out and named, or with --no-secrets goes in
without their values.`,
		Example: cmdutil.Examples("tally import ~/.claude ~/.codex", "tally import claude codex gemini pi", "tally import ~/.claude/projects/-home-me-travel --dry-run", "tally import .tally", "tally import travel cashflow --namespace evals", "tally import chats/*.json --format ailoop", "tally import perstack --no-secrets", "tally import .tally --dry-run -o json"),
		RunE: func(cmd *cobra.Command, args []string) error {
			cmdutil.CollectLess()
			cmdutil.WorkBesideSyncs()
			return a.WithStore(cmd.Context(), func(st *tally.Store) error { return i.run(cmd.Context(), st, args) })
		},
	}
	cmd.Flags().BoolVarP(&i.dryRun, "dry-run", "n", false, "say what would be added, and write nothing")
	cmd.Flags().BoolVar(&i.merge, "merge", false, "take the content of the folder or file also for sessions that came from elsewhere or moved on")
	cmd.Flags().BoolVar(&i.noSecrets, "no-secrets", false, "leave out the values of secrets, where a format knows them; each is counted and named, and the exit code is 3")
	known := slices.Concat(cmdutil.AgentFormats(), cmdutil.LayoutNames(nil))
	cmd.Flags().Var(cli.OneOf(&i.format, "form", known...), "format", "format of the folders or files: "+cmdutil.Or(known)+" (default: recognised)")
	cmd.Flags().Var(cli.OneOf(&i.redact, "how", on, off), "redact", "on: take known shapes of secrets out of the lines of agents before they are stored")
	return cmd
}

type importer struct {
	app           *cmdutil.App
	dryRun, merge bool
	noSecrets     bool
	format        string
	redact        string

	lines, redacted int // of agents
}

// Words of --redact.
const on, off = "on", "off"

// imported is what import prints with -o json.
type imported struct {
	layouts.Report
	Lines    int           `json:"lines,omitempty"`    // of agents, that were added
	Redacted int           `json:"redacted,omitempty"` // places in them, with --redact on
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
		fmt.Fprintln(i.app.Err, "Interrupted. What was imported is safe; run the same command again to go on.")
	}
	if failed == nil && len(total.Problems) > 0 {
		return &cli.CodeError{Code: cli.Partial, Err: fmt.Errorf("%s; everything else went in", plain.Count(len(total.Problems), "problem"))}
	}
	return failed
}

// within replaces a folder of no known format by what it holds of one, directly below it. Of
// a folder in which several agents' files lie it says what they are in.
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

// below lists what is directly below a folder and can be imported, nothing if a layout knows
// the folder itself.
func (i *importer) below(path string) []string {
	if _, err := layouts.Sniff(path, i.known()...); err == nil {
		return nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil // which importing it says
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

// shortList lists paths by their names below a folder, so many at most.
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

// known are the layouts that may be meant.
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

// signs says by what layouts are recognised.
func signs() string {
	var list []string
	for _, l := range cmdutil.Layouts {
		list = append(list, l.Sign)
	}
	return strings.Join(list, "; ")
}

// fullName returns the path of a file that a report names. path is what was imported, dir
// the folder that the report names files relative to, which may be above that or in it.
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

// one imports one folder or file. before is what the folders before it came to.
func (i *importer) one(ctx context.Context, st *tally.Store, path string, before layouts.Report, progress *cli.Progress) (layouts.Report, error) {
	if _, err := os.Stat(path); err != nil {
		return layouts.Report{}, err
	}
	if found, ok := i.agentFiles(path); ok {
		return i.agents(ctx, st, path, found, before, progress)
	}
	layout, err := layouts.Sniff(path, i.known()...)
	if err != nil {
		return layouts.Report{}, &cli.CodeError{Code: cli.Failed, Err: errors.New("no format that is known here"),
			Hint: "Sessions of agents are known by their lines, and --format says whose a file is. " + signs() + ". Turns or CloudEvents, one JSON object a line, go in by tally append."}
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

// next says what to try now, with the flags that find the same store.
func (i *importer) next() {
	tally, flags := cmdutil.Program(), i.app.StoreFlags()
	fmt.Fprintf(i.app.Out, "\nNext:\n  %s ls%s\n  %s show last%s\n  %s search TEXT%s\n", tally, flags, tally, flags, tally, flags)
}
