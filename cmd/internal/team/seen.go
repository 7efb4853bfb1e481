package team

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/app"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/cli"
	"github.com/tallylog/tally/internal/plain"
	"github.com/tallylog/tally/stores/tavern"
)

func newSeen(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use: "seen INBOX OFFSET|last", Short: "Say that messages were seen, up to one", Args: cobra.ExactArgs(2),
		Long: `Say that the messages of an inbox were seen, up to the one at an offset, or to the
last one that is there. What was seen stays so: an offset before that changes nothing.`,
		Example: app.Examples("tally seen user last", "tally seen kettle @118", "tally seen kettle @118 -o json"),
		RunE: func(cmd *cobra.Command, args []string) error {
			at, err := events.MaxOffset, error(nil)
			if args[1] != app.Last {
				at, err = events.ParseOffset(args[1])
			}
			if err != nil {
				return err
			}
			return a.WithExisting(cmd.Context(), func(st *tally.Store) error { return seen(cmd.Context(), a, tavern.InboxOf(st, args[0]), at) })
		},
	}
}

// seenUpto is what seen prints with -o json.
type seenUpto struct {
	Inbox  string        `json:"inbox"`
	Cursor events.Offset `json:"cursor"`
	Unread int           `json:"unread"`
}

// seen moves the cursor of an inbox forward; the greatest offset stands for its last message.
func seen(ctx context.Context, a *app.App, in *tavern.Inbox, at events.Offset) error {
	if err := known(ctx, a, in); err != nil {
		return err
	}
	if at == events.MaxOffset {
		list, _, err := in.List(ctx, tavern.Page{Newest: true, Limit: 1})
		if err != nil {
			return err
		}
		at = 0
		if len(list) > 0 {
			at = list[0].Offset
		}
	}
	err := in.Seen(ctx, at)
	if beyond, ok := errors.AsType[*tavern.SeenError](err); ok {
		return &cli.CodeError{Code: cli.Conflict, Err: beyond, Hint: "What has not come cannot be seen: " + app.Last + " stands for the last message that is there."}
	}
	if err != nil {
		return err
	}
	row := seenUpto{Inbox: cli.ID(in.Receiver())}
	if row.Cursor, err = in.Cursor(ctx); err != nil {
		return err
	}
	if row.Unread, err = in.Unread(ctx); err != nil {
		return err
	}
	if a.Format != cli.Text {
		return cli.WriteJSON(a.Out, a.Format, row)
	}
	return a.Say("%s has seen what is up to %v; %s left.", plain.Printable(row.Inbox), row.Cursor, plain.Count(row.Unread, "message"))
}
