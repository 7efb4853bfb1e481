package team

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/stores/tavern"
)

func newRequeue(a *cmdutil.App) *cobra.Command {
	return &cobra.Command{
		Use: "requeue QUEUE ITEM...", Short: "Have dead items of a work queue tried again", Args: cobra.MinimumNArgs(2),
		Long: `Have dead items of a work queue tried again, from the first attempt on. What happened
to them stays: tally queue QUEUE ITEM shows every attempt. An item that is not dead is
exit code 6, and one that is not there 4; those before it are queued again then.`,
		Example: cmdutil.Examples("tally requeue build v1:2", `tally queue build --dead -o jsonl | jq -j '.id + "\u0000"' | xargs -0 tally requeue build --`, "tally requeue build v1:2 -o json"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return riding(cmd.Context(), a, a.OpenExisting, func(s *store) error { return requeue(cmd.Context(), a, s, args[0], args[1:]) })
		},
	}
}

// requeued is a line of requeue with -o json.
type requeued struct {
	Queue string `json:"queue"`
	ID    string `json:"id"`
	State string `json:"state"`
}

func requeue(ctx context.Context, a *cmdutil.App, s *store, queue string, items []string) error {
	for _, id := range items {
		err := s.once(ctx, func(st *tally.Store) error { return tavern.QueueOf(st, queue).Requeue(ctx, id) },
			func(_ *tally.Store, err error) bool { return cli.Is[*tavern.ItemStateError](err) })
		if other, ok := errors.AsType[*tavern.ItemStateError](err); ok {
			return &cli.CodeError{Code: cli.Conflict, Err: other, Hint: "Only what is dead is queued again."}
		}
		if err != nil {
			return err
		}
		if a.Format == cli.Text {
			fmt.Fprintf(a.Out, "%s is queued again.\n", plain.Printable(cli.ID(id)))
			continue
		}
		row := requeued{Queue: cli.ID(queue), ID: cli.ID(id)}
		err = s.do(ctx, func(st *tally.Store) error {
			item, err := tavern.QueueOf(st, queue).Get(ctx, id)
			row.State = string(item.State)
			return err
		})
		if err == nil {
			err = cli.WriteJSON(a.Out, cli.JSONL, row)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
