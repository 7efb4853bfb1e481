package admin

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/internal/tree"
	"github.com/tallylog/tally/internal/tree/keeper"
	"github.com/tallylog/tally/log"
)

// treeConflict is a conflict in JSON.
type treeConflict struct {
	ID      string        `json:"id"`
	Path    string        `json:"path"`
	Copy    string        `json:"copy"`
	Subject string        `json:"subject,omitempty"`
	Base    events.Offset `json:"base"`
	Offset  events.Offset `json:"offset"`
	Reason  string        `json:"reason"`
	Bytes   int64         `json:"bytes"`
}

// treeVerified is the JSON output of tree verify.
type treeVerified struct {
	cmdutil.TreeStatus
	Differences []layouts.Problem `json:"differences"`
}

// treeVerbs are the commands that change a tree, or read all its files.
var treeVerbs = []struct{ verb, use, short, long string }{
	{keeper.VerbAccept, "accept", "Accept a mass change of files that stopped a tree",
		`Accept the mass change of files that stopped a tree: changed files become revisions, and
documents of deleted files are deleted.`},
	{keeper.VerbRestore, "restore", "Undo a mass change of files: write the files from the log again",
		`Undo the mass change of files that stopped a tree: write the files from the log again.
The changes of the files were not stored, and are lost.`},
	{keeper.VerbPull, "pull", "Read all files, and store those that changed",
		`Read all files, and store those that differ from the tree's last state. Use it after
files were changed while no process kept the tree, or on a file system that does not
report changes.`},
	{keeper.VerbRebuild, "rebuild", "Compare all files with the log again, without the tree's last state",
		`Forget the tree's last state of its files, and compare all files with the log again. A
file with content that the log had at any time is brought up to date. Any other file is
kept as a conflict.`},
}

func newTree(a *cmdutil.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "tree", Short: "Manage trees: folders that show sessions and documents as files",
		Long: `Manage trees: folders that show sessions and documents as files. A tree is kept up to
date both ways: new content in the store is written to files, and changes of files are
stored. Trees are configured by [[tree]] in tally.toml; tally init --tavern writes one.

The owner of the store keeps its trees: a command that writes, while it runs, or tally
serve all the time. Other commands ask the owner. For a NATS server, tally daemon run tree
keeps them.

If very many files change at once, for example because another branch was checked out or
a mount is gone, the tree stops and stores nothing. Appends to a tree in mode sync then
fail with a message, until you decide by accept or restore.`,
		Example: cmdutil.Examples("tally tree status", "tally tree conflicts", "tally tree restore"),
	}
	name := cmd.PersistentFlags().String("tree", "", "name of the tree (default: the only one)")
	_ = cmd.RegisterFlagCompletionFunc("tree", func(*cobra.Command, []string, string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
		if c, err := a.Config(); err == nil {
			for _, t := range c.Trees {
				names = append(names, t.Name)
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	})
	cmd.AddCommand(newTreeStatus(a, name), newTreeConflicts(a, name), newTreeResolve(a, name), newTreeVerify(a, name))
	for _, v := range treeVerbs {
		cmd.AddCommand(&cobra.Command{
			Use: v.use, Short: v.short, Long: v.long, Args: cobra.NoArgs, Example: cmdutil.Examples("tally tree "+v.use, "tally tree "+v.use+" --tree tavern", "tally tree "+v.use+" -o json"),
			RunE: func(cmd *cobra.Command, _ []string) error {
				return askTree(cmd.Context(), a, *name, v.verb, keeper.Question{}, func(s cmdutil.TreeStatus, _ keeper.Answer) error {
					return printTree(a, s)
				})
			},
		})
	}
	return cmdutil.Noun(cmd)
}

func newTreeStatus(a *cmdutil.App, name *string) *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Show how far each tree is, and which files it skips", Args: cobra.NoArgs,
		Long: `Show for each tree how far its files show the log, the number of conflicts, the paths
that it skips and why, files that could not be written, and whether it waits for a
decision about a mass change: then the exit code is 6. Nothing is changed.`,
		Example: cmdutil.Examples("tally tree status", "tally tree status --tree tavern", "tally tree status -o json"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.Config()
			if err != nil {
				return err
			}
			if *name != "" || len(c.Trees) == 0 {
				t, err := cmdutil.TreeNamed(c, *name)
				if err != nil {
					return err
				}
				c.Trees = []config.Tree{t}
			}
			return a.WithStillStore(cmd.Context(), func(st *tally.Store) error {
				list, err := treesOf(cmd.Context(), c, st)
				if err != nil {
					return err
				}
				if err := printTrees(a, list); err != nil {
					return err
				}
				if code := codeOf((status{Trees: list}).findings()); code != cli.OK {
					return cli.Silent(code)
				}
				return nil
			})
		},
	}
}

// treesOf returns the status of all trees, and how far they are behind.
func treesOf(ctx context.Context, c config.Config, st *tally.Store) ([]cmdutil.TreeStatus, error) {
	list, err := cmdutil.TreesAt(ctx, c)
	for i := range list {
		if err == nil {
			err = lagOf(ctx, st, &list[i])
		}
	}
	return list, err
}

func lagOf(ctx context.Context, st *tally.Store, t *cmdutil.TreeStatus) error {
	lag, err := st.Lag(ctx, t.Shown)
	t.LagEvents, t.LagSeconds = lag.Events, lag.Age.Seconds()
	return err
}

func printTrees(a *cmdutil.App, list []cmdutil.TreeStatus) error {
	if a.Format != cli.Text {
		return cli.WriteList(a.Out, a.Format, list)
	}
	for _, t := range list {
		if err := printTree(a, t); err != nil {
			return err
		}
	}
	return nil
}

func printTree(a *cmdutil.App, t cmdutil.TreeStatus) error {
	if a.Format != cli.Text {
		return cli.WriteJSON(a.Out, a.Format, t)
	}
	if err := a.Say("%s: %s", t.Name, t); err != nil {
		return err
	}
	for _, l := range t.LeftOut {
		names := plain.Printable(strings.Join(l.Sample, ", "))
		if l.Sessions > len(l.Sample) {
			names += ", ..."
		}
		if err := a.Say("  %s left out, %s: %s", plain.Count(l.Sessions, "session"), plain.Printable(l.Reason), names); err != nil {
			return err
		}
	}
	return printProblems(a, append(t.Skipped, t.Stuck...))
}

func printProblems(a *cmdutil.App, list []layouts.Problem) error {
	for _, p := range list {
		if err := a.Say("  %s", plain.Printable(p.String())); err != nil {
			return err
		}
	}
	return nil
}

func newTreeConflicts(a *cmdutil.App, name *string) *cobra.Command {
	return &cobra.Command{
		Use: "conflicts", Short: "List changes of files that could not be stored", Args: cobra.NoArgs,
		Long: `List changes of files that could not be stored, because the log had changed meanwhile or
the file cannot change. Each is a document conflict/<id>, and a copy next to the file. To
close a conflict, use what you need of it and remove the copy, or use tally tree resolve.`,
		Example: cmdutil.Examples("tally tree conflicts", "tally tree conflicts -o json", "tally doc cat conflict/1f0c"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return askTree(cmd.Context(), a, *name, keeper.VerbConflicts, keeper.Question{}, func(_ cmdutil.TreeStatus, said keeper.Answer) error {
				return printConflicts(a, said.Conflicts)
			})
		},
	}
}

func printConflicts(a *cmdutil.App, found []tree.Conflict) error {
	list := make([]treeConflict, len(found))
	t := render.Table{Head: []string{"ID", "FILE", "COPY", "BASE", "BYTES", "WHY"}, Right: []int{3, 4}, Cut: []int{5}, Drop: []int{4, 3}}
	for i, c := range found {
		list[i] = treeConflict{c.ID, c.Path, c.Copy, c.Subject, c.Base, c.At, c.Reason, c.Size}
		t.Rows = append(t.Rows, []string{cli.ID(c.ID), plain.Printable(c.Path), plain.Printable(c.Copy), c.Base.String(), strconv.FormatInt(c.Size, 10), plain.Printable(c.Reason)})
	}
	switch {
	case a.Format != cli.Text:
		return cli.WriteList(a.Out, a.Format, list)
	case len(list) == 0:
		return a.Say("There are no conflicts.")
	}
	return a.Table(t)
}

func newTreeResolve(a *cmdutil.App, name *string) *cobra.Command {
	return &cobra.Command{
		Use: "resolve CONFLICT", Short: "Close a conflict", Args: cobra.ExactArgs(1),
		Long: `Close a conflict, by an id from tally tree conflicts: its document is deleted, and the
copy of the file is removed. Older revisions can still be read.`,
		Example: cmdutil.Examples("tally tree resolve 1f0c", "tally tree resolve 1f0c --tree tavern", "tally tree resolve 1f0c -o json"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return askTree(cmd.Context(), a, *name, keeper.VerbResolve, keeper.Question{ID: args[0]}, func(s cmdutil.TreeStatus, _ keeper.Answer) error {
				return printTree(a, s)
			})
		},
	}
}

func newTreeVerify(a *cmdutil.App, name *string) *cobra.Command {
	return &cobra.Command{
		Use: "verify", Short: "Compare all files of a tree with the log", Args: cobra.NoArgs,
		Long: `Compare all files of a tree with the log. Nothing is changed. Differences are listed,
and the exit code is 5.`,
		Example: cmdutil.Examples("tally tree verify", "tally tree verify --tree tavern", "tally tree verify -o json"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return askTree(cmd.Context(), a, *name, keeper.VerbVerify, keeper.Question{}, func(s cmdutil.TreeStatus, said keeper.Answer) error {
				v, err := treeVerified{s, append([]layouts.Problem{}, said.Problems...)}, error(nil)
				switch {
				case a.Format != cli.Text:
					err = cli.WriteJSON(a.Out, a.Format, v)
				case len(v.Differences) == 0:
					err = a.Say("%s: %s as the log has them.", s.Name, plain.Count(s.Files, "file"))
				default:
					if err = a.Say("%s: %s:", s.Name, plain.Count(len(v.Differences), "difference")); err == nil {
						err = printProblems(a, v.Differences)
					}
				}
				x := &examination{}
				x.compared(v)
				if code := codeOf(x.findings); err == nil && code != cli.OK {
					err = cli.Silent(code)
				}
				return err
			})
		},
	}
}

// trees compares the files of each tree with the log, unless the tree waits for a decision.
func (x *examination) trees(st *tally.Store) error {
	c, err := x.app.Config()
	if err != nil {
		return err
	}
	list, err := treesOf(x.ctx, c, st)
	if err != nil {
		return err
	}
	for i, state := range list { // none of a store in memory
		t := c.Trees[i]
		if state.Asking != "" {
			x.tree(state)
			continue
		}
		said, err := keeper.Ask(x.ctx, c, t, keeper.VerbVerify, keeper.Question{})
		s := cmdutil.TreeStatus{Status: said.Status}
		switch {
		case isStopped(said):
			x.tree(s)
		case errors.Is(err, log.ErrUnavailable):
			x.ok("tree "+t.Name, "not compared: no process keeps it now")
		case err != nil:
			return fmt.Errorf("tree %s: %w", t.Name, err)
		default:
			x.compared(treeVerified{s, said.Problems})
		}
	}
	return nil
}

// tree reports a tree that waits for a decision.
func (x *examination) tree(t cmdutil.TreeStatus) {
	if t.Asking != "" {
		x.bad("tree "+t.Name, cli.Conflict, plain.Printable(t.Asking), "tally tree accept stores the changes; tally tree restore undoes them")
	}
}

// compared reports the differences between a tree and the log.
func (x *examination) compared(v treeVerified) {
	if n := len(v.Differences); n > 0 {
		x.bad("tree "+v.Name, cli.Integrity, fmt.Sprintf("%s from the log, the first is %s", plain.Count(n, "difference"), plain.Printable(v.Differences[0].String())), "tally tree verify lists them")
		return
	}
	x.ok("tree "+v.Name, "%s as the log has them", plain.Count(v.Files, "file"))
}

// askTree sends a request about a tree to the owner of the store, which may be this process.
func askTree(ctx context.Context, a *cmdutil.App, name, verb string, ask keeper.Question, show func(cmdutil.TreeStatus, keeper.Answer) error) error {
	c, err := a.Config()
	if err != nil {
		return err
	}
	t, err := cmdutil.TreeNamed(c, name)
	if err != nil {
		return err
	}
	if c.Backend == config.Memory {
		return cli.Usagef("a store in memory ends with this command, so it has no tree")
	}
	return a.WithStore(ctx, func(st *tally.Store) error {
		said, err := keeper.Ask(ctx, c, t, verb, ask)
		if errors.Is(err, log.ErrUnavailable) && c.Backend != config.Local {
			return &cli.CodeError{Code: cli.Unreachable, Err: err, Hint: "tally daemon run tree keeps it."}
		}
		if said.Error != nil && isStopped(said) {
			return &cli.CodeError{Code: cli.Conflict, Err: err}
		}
		if err != nil {
			return fmt.Errorf("tree %s: %w", t.Name, err)
		}
		s := cmdutil.TreeStatus{Status: said.Status, Mode: map[bool]string{true: "sync", false: "async"}[t.Sync]}
		if err := lagOf(ctx, st, &s); err != nil {
			return err
		}
		return show(s, said)
	})
}

// isStopped reports whether the tree has stopped and waits for a decision of the user.
func isStopped(said keeper.Answer) bool { return said.Status.Asking != "" }
