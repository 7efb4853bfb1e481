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

func newQueueRetry(a *cmdutil.App) *cobra.Command {
	return &cobra.Command{
		Use: "retry QUEUE ITEM...", Short: "Make dead items of a work queue ready again", Args: cobra.MinimumNArgs(2),
		Long: `Make dead items of a work queue ready again, with all attempts left. Earlier attempts
stay recorded: tally queue show prints them. If an item is not dead, the exit code is 6;
if it does not exist, 4. The items named before it are ready again in both cases.`,
		Example: cmdutil.Examples("tally queue retry build v1:2", `tally queue ls build --dead -o jsonl | jq -j '.id + "\u0000"' | xargs -0 tally queue retry build --`, "tally queue retry build v1:2 -o json"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return riding(cmd.Context(), a, a.OpenExisting, func(s *store) error { return retry(cmd.Context(), a, s, args[0], args[1:]) })
		},
	}
}

// retriedRow is a row of queue retry, with -o json.
type retriedRow struct {
	Queue string `json:"queue"`
	ID    string `json:"id"`
	State string `json:"state"`
}

func retry(ctx context.Context, a *cmdutil.App, s *store, queue string, items []string) error {
	for _, id := range items {
		err := s.once(ctx, func(st *tally.Store) error { return tavern.QueueOf(st, queue).Requeue(ctx, id) },
			func(_ *tally.Store, err error) bool { return cli.Is[*tavern.ItemStateError](err) })
		if other, ok := errors.AsType[*tavern.ItemStateError](err); ok {
			return &cli.CodeError{Code: cli.Conflict, Err: other, Hint: "Only dead items can be retried."}
		}
		if err != nil {
			return err
		}
		if a.Format == cli.Text {
			fmt.Fprintf(a.Out, "%s is ready again.\n", plain.Printable(cli.ID(id)))
			continue
		}
		row := retriedRow{Queue: cli.ID(queue), ID: cli.ID(id)}
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
