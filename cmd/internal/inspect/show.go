package inspect

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/cmd/internal/show"
	"github.com/tallylog/tally/cmd/internal/show/job"
	"github.com/tallylog/tally/cmd/internal/show/panel"
	"github.com/tallylog/tally/projector"
)

func newShow(a *cmdutil.App) *cobra.Command {
	v := &viewer{show.View{App: a, Stores: stores, Tools: show.ToolsBrief}}
	var step int64
	cmd := &cobra.Command{
		Use: "show SESSION", Short: "Show a session's turns, now or as of a position", Args: cobra.ExactArgs(1),
		Long: `Show the turns of a session, now or as of a position. Calls of tools and their
results are one line each; --tools full shows all of them, --tools none none.

--run shows the result of one run instead: an evaluation as a table of what
passed and failed, a simulation as its goal and how it ended. An id that runs of
several types have is written TYPE/ID. --traces shows how each step of a
simulation was chosen. With both, --raw gives the bytes as they were stored.

The session of a panel of models is shown run by run, the models side by side
where they fit; runs that were rewound are marked. --thread shows the history of
one model.

A job is shown by what it is and took, and by its runs, each below the one that
delegated to it; --thread and --last show its messages. --run shows what steps one of
its runs took; with --step, one of them: the checkpoint it ended with, the messages
that are new in that, with calls of tools and what they answered, and its events.

Of a session of an agent the conversation is shown, as on the agent's own screen:
what the model thought and what the program told it are a line each, but with --tools
full. What the agent logs, and what its sub-agents say, are named with their threads:
--thread log, --thread agent/ID; --all shows them too.

--last shows only the last turns of each thread. Of a long session no others are
read.

--follow goes on with each turn as it comes, and says where a rewind leads, until it
is interrupted. With -o json it prints lines: turns, each with its thread and number,
and moves, with the lengths of the threads from then on.

With -o json the result has two members: session (id, kind and the fields that
were set) and threads (the turns, each with the offset of its event). Nothing in
it would be changed by a rewind that is undone again.`,
		Example: cmdutil.Examples("tally show last", "tally show travel --last 20", "tally show travel --at '#5'", "tally show travel --thread main -o json",
			"tally show order-desk --run run-1785748100000-b4k3ry1", "tally show order-desk --traces", "tally show order-desk --tools full",
			"tally show ses_0198c2 --thread gpt-5", "tally show job/ID", "tally show job/ID --run RUN --step 3", "tally show last --last 3 -f"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if v.Last < 0 || v.Last > 0 && (v.Run != "" || v.Traces || v.All) {
				return cli.Usagef("--last wants a number of turns, without --run, --traces and --all")
			}
			if cmd.Flags().Changed("step") {
				if v.Run == "" || v.At != "" || v.Raw {
					return cli.Usagef("--step shows a step of a run as it is now: give it with --run, without --at and --raw")
				}
				v.Step = &step
			}
			if v.Run != "" && v.Traces || (v.Run != "" || v.Traces) && (v.Thread != "" || v.All) {
				return cli.Usagef("--run and --traces show something else than turns: give one of them, without --thread and --all")
			}
			if v.Follow && (v.At != "" || v.Run != "" || v.Traces || v.All || v.Raw) {
				return cli.Usagef("--follow goes on from the head, with turns: give it without --at, --run, --traces, --all and --raw")
			}
			return a.WithExisting(cmd.Context(), func(st *tally.Store) error { return v.show(cmd.Context(), st, args[0]) })
		},
	}
	cmd.Flags().StringVar(&v.At, "at", "", "position; default head")
	cmd.Flags().StringVar(&v.Thread, "thread", "", "only this thread")
	cmd.Flags().IntVar(&v.Last, "last", 0, "only so many turns from the end of each thread; default all")
	cmd.Flags().BoolVarP(&v.Follow, "follow", "f", false, "go on with what is appended, until interrupted")
	cmd.Flags().BoolVar(&v.All, "all", false, "also turns that are not in effect: rewound, late, replaced")
	cmd.Flags().BoolVar(&v.Raw, "raw", false, "only the turns' bytes as the producer gave them, one after the other")
	cmd.Flags().StringVar(&v.Run, "run", "", "the result of the run with this id")
	cmd.Flags().Int64Var(&step, "step", 0, "with --run, one step of a run of a job")
	cmd.Flags().BoolVar(&v.Traces, "traces", false, "how each step of a simulation was chosen")
	cmd.Flags().Var(cli.OneOf(&v.Tools, "how", show.ToolsNone, show.ToolsBrief, show.ToolsFull), "tools", "calls of tools and their results: none, brief or full")
	return cmd
}

// stores are the stores that show their sessions in a form of their own.
var stores = []show.Store{job.Store{}, panel.Store{}}

// viewer is a run of show.
type viewer struct{ show.View }

// page prints a session, a run or step traces.
type page struct{ *show.Page }

func newPage(v *viewer) page { return page{show.NewPage(&v.View)} }

func (v *viewer) show(ctx context.Context, st *tally.Store, arg string) error {
	var err error
	if v.Handle, err = v.App.Session(ctx, st, arg); err != nil {
		return err
	}
	for _, s := range v.Stores {
		if done, err := s.Show(ctx, &v.View); done || err != nil {
			return err
		}
	}
	s, err := v.Session(ctx)
	if err != nil {
		return err
	}
	switch {
	case v.Step != nil:
		return cli.Usagef("--step shows a step of a run of a job, and %s is not of a job", s.Subject.Name())
	case v.Run != "":
		return errors.Join(v.showRun(ctx, st, s), v.App.WarnDamaged(s))
	case v.Traces:
		return errors.Join(v.showTraces(s), v.App.WarnDamaged(s))
	}
	if v.Thread != "" && s.Threads[v.Thread] == nil {
		return &cli.CodeError{Code: cli.NotFound, Err: fmt.Errorf("%s has no thread %q there; it has %q", s.Subject, v.Thread, s.Threads.Names())}
	}
	if v.Follow {
		return v.showFollowed(ctx, s)
	}
	gone, hole, err := v.Gone(ctx)
	if err != nil {
		return err
	}
	switch {
	case v.Raw:
		err = v.writeRaw(s)
	case v.App.Format != cli.Text:
		err = v.WriteJSON(s, gone)
	default:
		err = v.writeText(s, gone)
	}
	return errors.Join(err, hole, v.App.WarnDamaged(s))
}

func (v *viewer) writeRaw(s *projector.Session) error {
	for _, name := range v.Names(s) {
		for _, t := range s.Threads.Turns(name) {
			b := t.Bytes
			if t.Raw != nil {
				b = append(slices.Clip(t.Raw), '\n')
			}
			if _, err := v.App.Bytes().Write(b); err != nil {
				return err
			}
		}
	}
	return nil
}
