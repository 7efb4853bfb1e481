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

// flowNames explains how flows are named, for help texts.
const flowNames = `A flow is named by its id or a beginning of it.`

func newFlow(a *cmdutil.App) *cobra.Command {
	return cmdutil.Noun(&cobra.Command{
		Use: "flow", Short: "Start workflows, move them from state to state, and end them",
		Long: `Start workflows, move them from state to state, and end them.

A template is a document workflow/ID, written with tally doc put: a JSON object with the
states of a flow, the states that may follow each, and the action when a worker is lost.

  {"initial": "build", "recovery": "restart",
   "states": {"build": {"to": ["test"]}, "test": {"to": ["build", "shipped"]},
              "shipped": {"end": true}}}

A flow keeps the revision of the template with which it was started. If a worker has
claimed a flow, only that worker can move it.

` + flowNames,
		Example: cmdutil.Examples("tally doc put workflow/release release.json --create", "tally flow start release --owner agent/ID", "tally flow move 01a7 test", "tally flow end 01a7"),
	}, append(cmdutil.Paged(newFlowLs(a), newFlowShow(a)), newFlowStart(a), newFlowMove(a), newFlowFail(a), newFlowEnd(a), newFlowRecover(a))...)
}

// flowNamed returns the flow that an argument names.
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
	return &cli.CodeError{Code: cli.NotFound, Err: fmt.Errorf("there is no flow %q in namespace %s", name, namespace), Hint: cmdutil.Program() + " flow ls lists the open flows, and with --all the others."}
}

// onFlow changes a flow with do, and prints its new state. The change must be idempotent: it is repeated after an
// unknown outcome.
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
			err = noFlow(name, in.Store().Namespace())
		}
		if err != nil {
			return err
		}
		return sayFlow(ctx, a, in, id)
	})
}

// sayFlow prints the state of a flow after a change.
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
