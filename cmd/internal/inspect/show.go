package inspect

import (
	"context"
	"encoding/json"
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
	"github.com/tallylog/tally/internal/erasure"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/projector"
)

func newShow(a *cmdutil.App) *cobra.Command {
	v := &viewer{show.View{App: a, Stores: stores, Tools: show.ToolsBrief}}
	var step int64
	cmd := &cobra.Command{
		Use: "show SESSION", Short: "Show the turns of a session, now or at an earlier position", Args: cobra.ExactArgs(1),
		Long: `Show the turns of a session, now or at an earlier position. Tool calls and their results
take one line each; --tools full shows them whole, --tools none hides them.

--run shows the result of a run: a table of what passed and failed for an evaluation,
goal and outcome for a simulation. If runs of several types have the id, write TYPE/ID.
--traces shows how each step of a simulation was chosen. With either, --raw prints the
stored bytes.

A panel of models is shown run by run, with the models side by side if they fit. Rewound
runs are marked. --thread shows the history of one model.

A job is shown with its status, usage and runs, each below the run that delegated to it.
--thread and --last show its messages. --run shows the steps of one of its runs. With
--step, it shows one step: its checkpoint, new messages with tool calls and results, and
its events.

For an agent's session, the conversation is shown as on the agent's own screen: thoughts
and instructions take one line each, unless --tools full is used. The agent's own log and
its sub-agents are only listed: show them with --thread log, --thread agent/ID or --all.

--last shows only the last turns of each thread, and does not read earlier ones of a long
session.

--follow waits for new turns and shows each, and where rewinds lead, until interrupted.
With -o json it prints lines: turns with their thread and number, and moves with the new
lengths of the threads.

-o json prints one document with two members: session (id, kind and the fields that were
set) and threads (the turns, each with the offset of its event). A rewind that is undone
leaves no trace in it.`,
		Example: cmdutil.Examples("tally show last", "tally show travel --last 20", "tally show travel --at '#5'", "tally show travel --thread main -o json",
			"tally show order-desk --run run-1785748100000-b4k3ry1", "tally show order-desk --traces", "tally show order-desk --tools full",
			"tally show ses_0198c2 --thread gpt-5", "tally show job/ID", "tally show job/ID --run RUN --step 3", "tally show last --last 3 -f"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if v.Last < 0 || v.Last > 0 && (v.Run != "" || v.Traces || v.All) {
				return cli.Usagef("--last needs a positive number of turns, without --run, --traces and --all")
			}
			if cmd.Flags().Changed("step") {
				if v.Run == "" || v.At != "" || v.Raw {
					return cli.Usagef("--step needs --run, without --at and --raw")
				}
				v.Step = &step
			}
			if v.Run != "" && v.Traces || (v.Run != "" || v.Traces) && (v.Thread != "" || v.All) {
				return cli.Usagef("use either --run or --traces, without --thread and --all")
			}
			if v.Follow && (v.At != "" || v.Run != "" || v.Traces || v.All || v.Raw) {
				return cli.Usagef("--follow begins at the head: use it without --at, --run, --traces, --all and --raw")
			}
			open := a.WithLook
			if v.Follow {
				open = a.WithExisting
			}
			return open(cmd.Context(), func(st *tally.Store) error { return v.show(cmd.Context(), st, args[0]) })
		},
	}
	cmd.Flags().StringVar(&v.At, "at", "", "position; default head")
	cmd.Flags().StringVar(&v.Thread, "thread", "", "only this thread")
	cmd.Flags().IntVar(&v.Last, "last", 0, "only this number of turns from the end of each thread; default all")
	cmd.Flags().BoolVarP(&v.Follow, "follow", "f", false, "wait for new turns, until interrupted")
	cmd.Flags().BoolVar(&v.All, "all", false, "also turns that are not in effect: rewound, stale, replaced")
	cmd.Flags().BoolVar(&v.Raw, "raw", false, "only print the bytes of the turns, as the producer wrote them")
	cmd.Flags().StringVar(&v.Run, "run", "", "show the result of the run with this id")
	cmd.Flags().Int64Var(&step, "step", 0, "with --run of a job: show one step")
	cmd.Flags().BoolVar(&v.Traces, "traces", false, "show how each step of a simulation was chosen")
	cmd.Flags().Var(cli.OneOf(&v.Tools, "how", show.ToolsNone, show.ToolsBrief, show.ToolsFull), "tools", "tool calls and their results: none, brief or full")
	return cmd
}

// stores are the stores whose sessions have a form of their own.
var stores = []show.Store{job.Store{}, panel.Store{}}

// viewer is a run of show.
type viewer struct{ show.View }

// threadsPage prints a session, a run or step traces.
type threadsPage struct{ *show.Page }

func newPage(v *viewer) threadsPage { return threadsPage{show.NewPage(&v.View)} }

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
		return cli.Usagef("--step needs a job, and %s is not a job", s.Subject.Name())
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
		v.sayErased(ctx, st, s)
	}
	return errors.Join(err, hole, v.App.WarnDamaged(s))
}

// sayErased prints who erased turns of a session, when and why, as far as receipts of the namespace say it.
func (v *viewer) sayErased(ctx context.Context, st *tally.Store, s *projector.Session) {
	said := map[string]bool{"": true}
	for _, name := range v.Names(s) {
		for _, t := range s.Threads.Turns(name) {
			if said[t.Erased] {
				continue
			}
			said[t.Erased] = true
			doc, err := st.Documents().Read(ctx, erasure.KindReceipt, t.Erased)
			var r erasure.Receipt
			if err != nil || json.Unmarshal(doc.Data, &r) != nil {
				continue
			}
			line := "erased " + cli.Minute(r.At)
			if r.By != "" {
				line += " by " + plain.Printable(r.By)
			}
			if r.Reason != "" {
				line += ": " + plain.Printable(r.Reason)
			}
			fmt.Fprintf(v.App.Err, "%s (receipt %s)\n", line, plain.Printable(t.Erased))
		}
	}
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
