package team

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/stores/tavern"
)

func newFlowStart(a *cmdutil.App) *cobra.Command {
	var o tavern.FlowOptions
	var parent string
	cmd := &cobra.Command{
		Use: "start TEMPLATE [FILE|-]", Short: "Start a workflow", Args: cobra.RangeArgs(1, 2),
		Long: `Start a workflow in the first state of its template, with the JSON of a file or of standard
input as its input. With --id a start can be repeated safely: the same flow is started once.
If another flow has that id, the exit code is 6.

--owner is the session to which the flow belongs. When the owner has ended, the flow is an
orphan: tally agent orphans lists it.`,
		Example: cmdutil.Examples("tally flow start release --owner agent/8f14e45f-ceea-467f-a0e6-6c1b1b1f1b1f", "tally flow start release input.json --id release-7", "echo '{\"version\": 7}' | tally flow start release - -o json"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			o.Parent = startedIn(parent)
			if o.Input, err = value(a, args[1:]); err != nil {
				return err
			}
			return riding(cmd.Context(), a, a.OpenExisting, func(in *store) error {
				if o.ID == "" {
					o.ID = in.Store().Log.NewID() // the id makes a repeated start idempotent
				}
				if err := in.do(cmd.Context(), func(st *tally.Store) error { return startFlow(cmd.Context(), a, st, args[0], o) }); err != nil {
					return refused(err)
				}
				return sayFlow(cmd.Context(), a, in, o.ID)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.ID, "id", "", "id of the flow; default: a new one")
	f.StringVar(&o.Owner, "owner", "", "session to which it belongs, such as agent/ID")
	f.StringVar(&parent, "parent", "", "session in which it was started")
	return cmd
}

// startFlow starts a flow of a template.
func startFlow(ctx context.Context, a *cmdutil.App, st *tally.Store, template string, o tavern.FlowOptions) error {
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
