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
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/daemon/runner"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/internal/tree/keeper"
)

// daemonsRow is the output of daemon run -o json: at the start, and with --once at the end.
type daemonsRow struct {
	Daemons []cmdutil.DaemonStatus `json:"daemons"`
}

func newDaemonRun(a *cmdutil.App) *cobra.Command {
	var once bool
	cmd := &cobra.Command{
		Use: "run [delivery|dispatch|janitor|retain|tree]...", Short: "Run the background workers until interrupted",
		Args: cobra.OnlyValidArgs, ValidArgs: append(cmdutil.DaemonNames(), trees),
		Long: `Run the background workers until interrupted: for a NATS server, or for a
store whose owner runs none. tally serve runs them by itself. Running a worker twice is safe:
it only reads more, and no decision is made twice.

delivery sends notices to the senders of messages that were not answered in time, that were
refused, or whose receiver has ended. dispatch ends queue items without attempts left,
recovers flows that lost their worker, and ends the leases of agents. janitor archives and
purges stopped agents, deletes expired documents, and removes orphans. retain forgets, once a day, the sessions
that are older than [retain] in your config.toml says: see tally forget.

tree keeps the trees of tally.toml, which show sessions and documents as files: see tally
tree. It is for a server that others run; trees are in mode async there. The owner of a local
store keeps its trees by itself.

Without arguments the workers in run of [daemons] in tally.toml run, by default all. How long
the property of ended agents is kept is set by archive, purge and orphans in [daemons] of your
config.toml; without a time it stays. Times are the log's, so a wrong clock has no effect.

With --once the workers do all work that is due now, and end.`,
		Example: cmdutil.Examples("tally daemon run --once", "tally daemon run janitor --once -o json", "tally daemon run --server nats://127.0.0.1:4222 delivery dispatch", "tally daemon run tree"),
		RunE: func(cmd *cobra.Command, names []string) error {
			c, err := a.Config()
			if err != nil {
				return err
			}
			if len(names) == 0 {
				names = c.Daemons.Run
			}
			if len(names) == 0 {
				return cli.Usagef("run in [daemons] is empty: name the workers to run")
			}
			if slices.Contains(names, trees) {
				if once {
					return cli.Usagef("tree cannot run with --once: tally tree pull reads the files once")
				}
				if len(c.Trees) == 0 {
					_, err := cmdutil.TreeNamed(c, "")
					return err
				}
			}
			if once {
				return runOnce(cmd.Context(), a, c, names)
			}
			return runOn(cmd.Context(), a, c, names)
		},
	}
	cmd.Flags().BoolVar(&once, "once", false, "do all work that is due now, and end")
	return cmd
}

func runOnce(ctx context.Context, a *cmdutil.App, c config.Config, names []string) error {
	lg, err := a.Logger()
	if err != nil {
		return err
	}
	return a.WithExisting(ctx, func(st *tally.Store) error {
		daemons, err := cmdutil.DaemonsOf(c, names)(st)
		if err != nil {
			return err
		}
		list, err := runner.Once(ctx, st, daemons, lg)
		if err != nil {
			return err
		}
		var said daemonsRow
		for _, d := range list {
			d.Waits = "" // the command ends now
			said.Daemons = append(said.Daemons, cmdutil.DaemonStatusOf(d))
		}
		return said.once(a)
	})
}

// once prints what each worker did, and when the next task is due.
func (t daemonsRow) once(a *cmdutil.App) error {
	if a.Format != cli.Text {
		return cli.WriteJSON(a.Out, a.Format, t)
	}
	for _, d := range t.Daemons {
		text := fmt.Sprintf("%s: %s", d.Daemon, plain.Count(d.Made, "decision"))
		if d.Made > 0 {
			text += fmt.Sprintf(", the last one %s, %s", plain.Printable(cli.SubjectName(d.Subject)), plain.Printable(d.What))
		}
		if d.Next != "" {
			text += "; the next task is due " + d.Next
		}
		if err := a.Say("%s", text); err != nil {
			return err
		}
	}
	return nil
}

func runOn(ctx context.Context, a *cmdutil.App, c config.Config, names []string) error {
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
		daemons, err := cmdutil.DaemonsOf(c, ofDaemons)(st)
		if err == nil {
			err = announce(a, c, names)
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
				other = runTrees(ctx, c, st, lg)
			})
		}
		if len(daemons) > 0 {
			err = runner.Run(ctx, st, dir, daemons, lg)
			stop()
		}
		keeping.Wait()
		return errors.Join(err, other)
	})
}

// trees is the name of the worker that keeps trees.
const trees = "tree"

// runTrees keeps the trees of a store until ctx is done. For a local store, it asks the owner.
func runTrees(ctx context.Context, c config.Config, st *tally.Store, lg *slog.Logger) error {
	for _, t := range c.Trees {
		if c.Backend == config.NATS && t.Sync {
			return t.Wrong("mode", "on a NATS server a tree needs mode = \"async\"")
		}
	}
	if c.Backend == config.NATS {
		return keeper.Keep(ctx, st, c, cmdutil.LiveLayout, lg)
	}
	for _, t := range c.Trees {
		said, err := keeper.Ask(ctx, c, t, keeper.VerbKeep, keeper.Question{})
		if err == nil && said.Status.PID != os.Getpid() {
			err = &keeper.KeptError{PID: said.Status.PID}
		}
		if err != nil {
			return fmt.Errorf("tree %s: %w", t.Name, err)
		}
	}
	<-ctx.Done()
	return nil
}

// announce prints which workers run, and warns about workers that run elsewhere already.
func announce(a *cmdutil.App, c config.Config, names []string) error {
	list, _ := cmdutil.DaemonsAt(c) // without a warning on an error
	for _, d := range list {
		if slices.Contains(names, d.Daemon) {
			fmt.Fprintf(a.Err, "process %d runs %s already: running it twice is safe\n", d.PID, d.Daemon)
		}
	}
	if a.Format == cli.Text {
		return a.Say("Running %s. Stop with Ctrl-C.", strings.Join(names, ", "))
	}
	var said daemonsRow
	for _, name := range names {
		said.Daemons = append(said.Daemons, cmdutil.DaemonStatus{Daemon: name})
	}
	return cli.WriteJSON(a.Out, cli.JSONL, said)
}
