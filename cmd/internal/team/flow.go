package team

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/tavern"
)

// flowNames says how flows are named, for help texts.
const flowNames = `A flow is named by its id, or by a beginning of that.`

func newFlow(a *cmdutil.App) *cobra.Command {
	return family(&cobra.Command{
		Use: "flow", Short: "Start workflows, move them from state to state, and end them",
		Long: `Start workflows, move them from state to state, and end them. flows lists them.

A template is a document workflow/ID, which put writes: a JSON object that names the
states of a flow, where each leads, and what is to be done when its worker is lost.

  {"initial": "build", "recovery": "restart",
   "states": {"build": {"to": ["test"]}, "test": {"to": ["build", "shipped"]},
              "shipped": {"end": true}}}

A flow keeps the revision of the template that it was started with. One that a worker
has claimed is moved by that worker alone.

` + flowNames,
		Example: cmdutil.Examples("tally put workflow/release release.json --create", "tally flow start release --owner agent/ID", "tally flow move 01a7 test", "tally flow end 01a7"),
	}, newFlowStart(a), newFlowMove(a), newFlowFail(a), newFlowEnd(a), newFlowRecover(a))
}

// flowNamed finds the flow that an argument names.
func flowNamed(ctx context.Context, st *tally.Store, arg string) (*tavern.Flow, error) {
	const prefix = events.KindFlow + "/"
	arg = strings.TrimPrefix(arg, prefix)
	s, err := cmdutil.SessionNamed(ctx, st, prefix+arg)
	if missing, ok := errors.AsType[*cli.CodeError](err); ok && missing.Code == cli.NotFound {
		return nil, noFlow(arg, st.Namespace())
	}
	if err != nil {
		return nil, err
	}
	return tavern.FlowOf(st, strings.TrimPrefix(s.ID(), prefix)), nil
}

func noFlow(name, namespace string) error {
	return &cli.CodeError{Code: cli.NotFound, Err: fmt.Errorf("there is no flow %q in namespace %s", name, namespace), Hint: cmdutil.Program() + " flows lists those that are open, and with --all the others."}
}

// onFlow does something with a flow that is one if it is done again, and says where the flow
// is then.
func onFlow(ctx context.Context, a *cmdutil.App, name string, do func(*tavern.Flow) error) error {
	return riding(ctx, a, a.OpenExisting, func(in *store) error {
		var id string
		err := in.do(ctx, func(st *tally.Store) error {
			f, err := flowNamed(ctx, st, name)
			if err == nil {
				id = f.ID()
			}
			return err
		})
		if err == nil {
			err = refused(in.do(ctx, func(st *tally.Store) error { return do(tavern.FlowOf(st, id)) }))
		}
		if errors.Is(err, events.ErrNotFound) && !cli.Is[*cli.CodeError](err) {
			err = noFlow(name, in.now().Namespace())
		}
		if err != nil {
			return err
		}
		return sayFlow(ctx, a, in, id)
	})
}

// sayFlow prints where a flow is now, after a change.
func sayFlow(ctx context.Context, a *cmdutil.App, in *store, id string) error {
	f, s := (*tavern.Flow)(nil), (*tavern.FlowState)(nil)
	err := in.do(ctx, func(st *tally.Store) (err error) {
		f = tavern.FlowOf(st, id)
		s, err = f.State(ctx)
		return projector.Tolerate(err)
	})
	if err != nil {
		return err
	}
	if a.Format != cli.Text {
		return cli.WriteJSON(a.Out, a.Format, flowRowOf(f, s))
	}
	if s.Over() {
		return a.Say("%s is over, in %s: %s.", cli.ID(f.ID()), plain.Printable(s.State), plain.Printable(s.Outcome()))
	}
	return a.Say("%s is in %s.", cli.ID(f.ID()), plain.Printable(s.State))
}

func newFlowStart(a *cmdutil.App) *cobra.Command {
	var o tavern.FlowOptions
	var parent string
	cmd := &cobra.Command{
		Use: "start TEMPLATE [FILE|-]", Short: "Start a workflow", Args: cobra.RangeArgs(1, 2),
		Long: `Start a workflow, which is in the first state of its template then, with the JSON of a
file, or of standard input, as what it is started with. With --id the same start, made
again after an answer that was lost, is one; another flow of that id is code 6.

--owner is the session that the flow belongs to: where that is gone, it is an orphan.`,
		Example: cmdutil.Examples("tally flow start release --owner agent/8f14e45f-ceea-467f-a0e6-6c1b1b1f1b1f", "tally flow start release input.json --id release-7", "echo '{\"version\": 7}' | tally flow start release - -o json"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			o.Parent = startedIn(parent)
			if o.Input, err = value(a, args[1:]); err != nil {
				return err
			}
			return riding(cmd.Context(), a, a.OpenExisting, func(in *store) error {
				if o.ID == "" {
					o.ID = in.now().Log.NewID() // started again it is one flow
				}
				if err := in.do(cmd.Context(), func(st *tally.Store) error { return start(cmd.Context(), a, st, args[0], o) }); err != nil {
					return refused(err)
				}
				return sayFlow(cmd.Context(), a, in, o.ID)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.ID, "id", "", "id of the flow; default: a new one")
	f.StringVar(&o.Owner, "owner", "", "session that it belongs to, such as agent/ID")
	f.StringVar(&parent, "parent", "", "session in which it was started")
	return cmd
}

// start starts a flow of a template.
func start(ctx context.Context, a *cmdutil.App, st *tally.Store, template string, o tavern.FlowOptions) error {
	doc, err := cmdutil.Document(ctx, st, tavern.KindWorkflow+"/"+strings.TrimPrefix(template, tavern.KindWorkflow+"/"))
	if err != nil {
		return err
	}
	_, err = tavern.WorkflowsOf(st).Start(ctx, doc.ID, o)
	if errors.Is(err, tally.ErrNotFound) {
		return a.DocumentError(ctx, st, doc, err)
	}
	return err
}

func newFlowMove(a *cmdutil.App) *cobra.Command {
	return &cobra.Command{
		Use: "move ID STATE", Short: "Move a flow to another state", Args: cobra.ExactArgs(2),
		Long: `Move a flow to another state, by hand. Where the state that it is in does not lead, it
does not go: that is code 6, and says where it leads. So it is for a flow that a worker
drives, for one that is over, and for a state whose own flow is not.

` + flowNames,
		Example: cmdutil.Examples("tally flow move release-7 test", "tally flow move 01a7 'given up'", "tally flow move release-7 shipped -o json"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var from *tavern.FlowState // as it is looked at first: moved again it is one move
			return onFlow(cmd.Context(), a, args[0], func(f *tavern.Flow) (err error) {
				if from == nil {
					if from, err = f.State(cmd.Context()); err != nil {
						return err
					}
				}
				return f.MoveFrom(cmd.Context(), from, args[1])
			})
		},
	}
}

func newFlowFail(a *cmdutil.App) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "fail ID", Short: "End a flow as failed", Args: cobra.ExactArgs(1),
		Long: `End a flow as failed, wherever it is and whoever drives it. One that is over is code 6.

` + flowNames,
		Example: cmdutil.Examples("tally flow fail release-7 --reason 'no longer wanted'", "tally flow fail 01a7", "tally flow fail 01a7 -o json"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return onFlow(cmd.Context(), a, args[0], func(f *tavern.Flow) error { return f.Fail(cmd.Context(), reason) })
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why")
	return cmd
}

func newFlowEnd(a *cmdutil.App) *cobra.Command {
	return &cobra.Command{
		Use: "end ID [FILE|-]", Short: "End a flow that has come to its end", Args: cobra.RangeArgs(1, 2),
		Long: `End a flow that is in an end of its template, with the JSON of a file, or of standard
input, as its result. Elsewhere, and if a worker drives it, that is code 6.

` + flowNames,
		Example: cmdutil.Examples("tally flow end release-7", "tally flow end 01a7 result.json", "echo '{\"url\": \"...\"}' | tally flow end 01a7 -"),
		RunE: func(cmd *cobra.Command, args []string) error {
			result, err := value(a, args[1:])
			if err != nil {
				return err
			}
			return onFlow(cmd.Context(), a, args[0], func(f *tavern.Flow) error { return f.End(cmd.Context(), result) })
		},
	}
}

func newFlowRecover(a *cmdutil.App) *cobra.Command {
	return &cobra.Command{
		Use: "recover ID", Short: "Do what a template says of a flow whose worker is lost", Args: cobra.ExactArgs(1),
		Long: `Do what is due in a flow now, as its template says: where its worker's lease is over, or
the flow that its state started did not complete, the rule of the state is applied. If
nothing is due, nothing is written.

` + flowNames,
		Example: cmdutil.Examples("tally flow recover release-7", "tally flow recover 01a7", "tally flow recover 01a7 -o json"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return onFlow(cmd.Context(), a, args[0], func(f *tavern.Flow) error {
				why, err := f.Recover(cmd.Context())
				if err == nil && why == "" {
					why = "nothing is due"
				}
				if err == nil {
					fmt.Fprintln(a.Err, plain.Printable(why))
				}
				return err
			})
		},
	}
}
