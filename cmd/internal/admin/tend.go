package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/stores/tavern"
)

// tending is what tend prints with -o json: when it begins, and with --once when it is done.
type tending struct {
	Daemons []cmdutil.DaemonStatus `json:"daemons"`
}

func newTend(a *cmdutil.App) *cobra.Command {
	var once bool
	cmd := &cobra.Command{
		Use: "tend [delivery|dispatch|janitor|tree]...", Short: "Decide on what is due, until stopped",
		Args: cobra.OnlyValidArgs, ValidArgs: append(tavern.DaemonNames(), trees),
		Long: `Decide on what is due, until SIGINT or SIGTERM: beside a server that others run, or a
store whose owner runs no daemons. tally serve runs them by itself. To run them twice
costs reading and nothing else: nothing is decided twice.

delivery tells the senders of messages that were not answered in time, that a receiver
would not take, or that lie with one who is gone. dispatch ends items of queues whose
attempts are used up, recovers flows whose worker was lost, and notices agents whose
lease is over. janitor archives and purges agents that were stopped, deletes documents
that are expired, and takes away what belonged to somebody who is gone.

tree keeps the trees of tally.toml, sessions and documents that are files: see tally
tree. It is for a server that others run, beside which trees are in mode async. The owner
of a local store keeps them by itself.

Without arguments it runs those that [daemons] run of tally.toml names: all, if it says
nothing. How long what the dead have left is kept, archive, purge and orphans say in
[daemons] of your own config.toml; what has no time there stays. Time is the log's: a
clock that is wrong decides nothing.

With --once it decides on what is due now, and ends.`,
		Example: cmdutil.Examples("tally tend --once", "tally tend janitor --once -o json", "tally tend --server nats://127.0.0.1:4222 delivery dispatch", "tally tend tree"),
		RunE: func(cmd *cobra.Command, names []string) error {
			c, err := a.Config()
			if err != nil {
				return err
			}
			if len(names) == 0 {
				names = c.Daemons.Run
			}
			if len(names) == 0 {
				return cli.Usagef("no daemon is to run here, as [daemons] run says: name those that shall")
			}
			if slices.Contains(names, trees) {
				if once {
					return cli.Usagef("a tree is kept until it is stopped: tally tree pull looks at its files once")
				}
				if len(c.Trees) == 0 {
					_, err := cmdutil.TreeNamed(c, "")
					return err
				}
			}
			if once {
				return tendOnce(cmd.Context(), a, c, names)
			}
			return tendOn(cmd.Context(), a, c, names)
		},
	}
	cmd.Flags().BoolVar(&once, "once", false, "decide on what is due now, and end")
	return cmd
}

func tendOnce(ctx context.Context, a *cmdutil.App, c config.Config, names []string) error {
	lg, err := a.Logger()
	if err != nil {
		return err
	}
	return a.WithExisting(ctx, func(st *tally.Store) error {
		daemons, err := cmdutil.DaemonsOf(c.Daemons, names)(st)
		if err != nil {
			return err
		}
		list, err := embedded.TendOnce(ctx, st, daemons, lg)
		if err != nil {
			return err
		}
		var said tending
		for _, d := range list {
			d.Waits = "" // it ends
			said.Daemons = append(said.Daemons, cmdutil.DaemonStatusOf(d))
		}
		return said.once(a)
	})
}

// once says what each daemon decided, and when the next thing is due.
func (t tending) once(a *cmdutil.App) error {
	if a.Format != cli.Text {
		return cli.WriteJSON(a.Out, a.Format, t)
	}
	for _, d := range t.Daemons {
		text := fmt.Sprintf("%s: %s", d.Daemon, plain.Count(d.Made, "decision"))
		if d.Made > 0 {
			text += fmt.Sprintf(", the last one %s, %s", plain.Printable(cli.SubjectName(d.Subject)), plain.Printable(d.What))
		}
		if d.Next != "" {
			text += "; the next thing is due " + d.Next
		}
		if err := a.Say("%s", text); err != nil {
			return err
		}
	}
	return nil
}

func tendOn(ctx context.Context, a *cmdutil.App, c config.Config, names []string) error {
	lg, err := a.Logger()
	if err != nil {
		return err
	}
	dir := ""
	if c.Backend == config.Local {
		dir = c.Store
	}
	ofDaemons := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == trees })
	return a.WithStore(ctx, func(st *tally.Store) error {
		daemons, err := cmdutil.DaemonsOf(c.Daemons, ofDaemons)(st)
		if err == nil {
			err = beginTending(a, c, names)
		}
		if err != nil {
			return err
		}
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		var keeping sync.WaitGroup
		var other error
		if len(ofDaemons) < len(names) {
			keeping.Go(func() {
				defer stop()
				other = tendTrees(ctx, c, st, lg)
			})
		}
		if len(daemons) > 0 {
			err = embedded.Tend(ctx, st, dir, daemons, lg)
			stop()
		}
		keeping.Wait()
		return errors.Join(err, other)
	})
}

// trees is what keeps the trees is called by, among the daemons.
const trees = "tree"

// tendTrees keeps the trees of a store until ctx is done. A local store's are kept by its owner.
func tendTrees(ctx context.Context, c config.Config, st *tally.Store, lg *slog.Logger) error {
	for _, t := range c.Trees {
		if c.Backend == config.NATS && t.Sync {
			return t.Wrong("mode", "beside a server that others run, files follow a little later: want mode = \"async\"")
		}
	}
	if c.Backend == config.NATS {
		return embedded.KeepTrees(ctx, st, c, cmdutil.LiveLayout, lg)
	}
	for _, t := range c.Trees {
		said, err := embedded.AskTree(ctx, c, t, embedded.TreeKeep, embedded.TreeAsk{})
		if err == nil && said.Status.PID != os.Getpid() {
			err = &embedded.TreeKeptError{PID: said.Status.PID}
		}
		if err != nil {
			return fmt.Errorf("tree %s: %w", t.Name, err)
		}
	}
	<-ctx.Done()
	return nil
}

// beginTending says which daemons run, and who runs one of them already.
func beginTending(a *cmdutil.App, c config.Config, names []string) error {
	list, _ := cmdutil.DaemonsAt(c) // else nobody says so
	for _, d := range list {
		if slices.Contains(names, d.Daemon) {
			fmt.Fprintf(a.Err, "process %d runs %s already: to run it twice costs reading and nothing else\n", d.PID, d.Daemon)
		}
	}
	if a.Format == cli.Text {
		return a.Say("Looking after what is due: %s. Stop it with Ctrl-C.", strings.Join(names, ", "))
	}
	var said tending
	for _, name := range names {
		said.Daemons = append(said.Daemons, cmdutil.DaemonStatus{Daemon: name})
	}
	return cli.WriteJSON(a.Out, cli.JSONL, said)
}
