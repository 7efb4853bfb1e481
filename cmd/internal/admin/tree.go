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
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/internal/tree"
	"github.com/tallylog/tally/log"
)

// treeConflict is a conflict as it is printed.
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

// treeVerified is what tree verify prints.
type treeVerified struct {
	cmdutil.TreeStatus
	Differences []layouts.Problem `json:"differences"`
}

// treeVerbs are those that change something, or read every file.
var treeVerbs = []struct{ verb, use, short, long string }{
	{embedded.TreeAccept, "accept", "Take in the mass change that a tree asks about",
		`Take in the mass change that a tree asks about: what was written becomes revisions,
what is gone is deleted.`},
	{embedded.TreeRestore, "restore", "Write the files again as the log has them",
		`Drop the mass change that a tree asks about, and write its files again as the log
has them. What is dropped was not stored and is gone.`},
	{embedded.TreePull, "pull", "Read every file, and take in what differs",
		`Read every file, and take in what differs from what the tree knows: after somebody
wrote to the files while nobody kept the tree, or where nothing says that files change.`},
	{embedded.TreeRebuild, "rebuild", "Forget what is known of the files, and find it out again",
		`Forget what is known of the files, and compare each with the log again. A file that
is what the log had at any time is brought up to date; any other is kept as a
conflict.`},
}

func newTree(a *cmdutil.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "tree", Short: "Look after sessions and documents that are files, both ways",
		Long: `Look after trees: folders in which sessions and documents are files. What is stored
comes to stand there, and what somebody writes to a file is stored. [[tree]] in
tally.toml names them; tally init --tavern writes one.

The process that owns the store keeps its trees: a command that writes, as long as it
runs, or tally serve all the time. Other commands ask the owner to keep theirs. Beside a
server that others run, tally daemon run tree keeps them.

If very much changes at once, as when another branch is checked out or a mount is
gone, nothing of it is taken in: the tree stands still, and appends to a tree in mode
sync say so, until accept or restore decides.`,
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
				return askTree(cmd.Context(), a, *name, v.verb, embedded.TreeAsk{}, func(s cmdutil.TreeStatus, _ embedded.TreeAnswer) error {
					return printTree(a, s)
				})
			},
		})
	}
	return cmdutil.Noun(cmd)
}

func newTreeStatus(a *cmdutil.App, name *string) *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Show how far each tree is, what it skips and what it asks", Args: cobra.NoArgs,
		Long: `Show for each tree how far its files show the log, how many conflicts it has, which
paths it skips and why, which files could not be written, and whether it asks about a
mass change: then the exit code is 6. Nothing is changed.`,
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
				if cmdutil.Asks(list) {
					return cli.Silent(cli.Conflict)
				}
				return nil
			})
		},
	}
}

// treesOf says how trees are, and how far behind.
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
		Use: "conflicts", Short: "List texts that were written to files and not taken", Args: cobra.NoArgs,
		Long: `List texts that somebody wrote to a file while the log had moved on, or to one that
cannot change. Each is a document conflict/<id>, and stands beside the file that it was
written to. Take from it what is right, and close it: remove the copy, or tree
resolve.`,
		Example: cmdutil.Examples("tally tree conflicts", "tally tree conflicts -o json", "tally doc cat conflict/1f0c"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return askTree(cmd.Context(), a, *name, embedded.TreeConflicts, embedded.TreeAsk{}, func(_ cmdutil.TreeStatus, said embedded.TreeAnswer) error {
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
		Long: `Close a conflict, as tree conflicts names it: its document is deleted, and the copy of
the file goes. Older revisions can still be read.`,
		Example: cmdutil.Examples("tally tree resolve 1f0c", "tally tree resolve 1f0c --tree tavern", "tally tree resolve 1f0c -o json"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return askTree(cmd.Context(), a, *name, embedded.TreeResolve, embedded.TreeAsk{ID: args[0]}, func(s cmdutil.TreeStatus, _ embedded.TreeAnswer) error {
				return printTree(a, s)
			})
		},
	}
}

func newTreeVerify(a *cmdutil.App, name *string) *cobra.Command {
	return &cobra.Command{
		Use: "verify", Short: "Compare every file of a tree with the log", Args: cobra.NoArgs,
		Long: `Compare every file of a tree with what the log has. Nothing is changed. What differs is
named, and the exit code is 5.`,
		Example: cmdutil.Examples("tally tree verify", "tally tree verify --tree tavern", "tally tree verify -o json"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return askTree(cmd.Context(), a, *name, embedded.TreeVerify, embedded.TreeAsk{}, func(s cmdutil.TreeStatus, said embedded.TreeAnswer) error {
				v := treeVerified{s, append([]layouts.Problem{}, said.Problems...)}
				var err error
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
				if err == nil && len(v.Differences) > 0 {
					err = cli.Silent(cli.Integrity)
				}
				return err
			})
		},
	}
}

// askTree asks the process that keeps a tree: the owner of the store, which may be this one.
func askTree(ctx context.Context, a *cmdutil.App, name, verb string, ask embedded.TreeAsk, show func(cmdutil.TreeStatus, embedded.TreeAnswer) error) error {
	c, err := a.Config()
	if err != nil {
		return err
	}
	t, err := cmdutil.TreeNamed(c, name)
	if err != nil {
		return err
	}
	if c.Backend == config.Memory {
		return cli.Usagef("a store in memory ends with this command, and its tree with it")
	}
	return a.WithStore(ctx, func(st *tally.Store) error {
		said, err := embedded.AskTree(ctx, c, t, verb, ask)
		if errors.Is(err, log.ErrUnavailable) && c.Backend != config.Local {
			return &cli.CodeError{Code: cli.Unreachable, Err: err, Hint: "tally daemon run tree keeps it."}
		}
		if said.Error != nil && isStopped(said) {
			return &cli.CodeError{Code: cli.Conflict, Err: err}
		}
		if err != nil {
			return fmt.Errorf("tree %s: %w", t.Name, err)
		}
		s := cmdutil.TreeStatus{TreeStatus: said.Status, Mode: map[bool]string{true: "sync", false: "async"}[t.Sync]}
		if err := lagOf(ctx, st, &s); err != nil {
			return err
		}
		return show(s, said)
	})
}

// isStopped reports whether an answer is that the tree asks.
func isStopped(said embedded.TreeAnswer) bool { return said.Status.Asking != "" }
