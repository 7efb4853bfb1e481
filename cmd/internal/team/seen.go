package team

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/stores/tavern"
)

func newSeen(a *cmdutil.App) *cobra.Command {
	return &cobra.Command{
		Use: "seen INBOX OFFSET|last", Short: "Say that messages were seen, up to one", Args: cobra.ExactArgs(2),
		Long: `Say that the messages of an inbox were seen, up to the one at an offset, or to the
last one that is there. What was seen stays so: an offset before that changes nothing.`,
		Example: cmdutil.Examples("tally seen user last", "tally seen kettle @118", "tally seen kettle @118 -o json"),
		RunE: func(cmd *cobra.Command, args []string) error {
			at, err := events.MaxOffset, error(nil)
			if args[1] != cmdutil.Last {
				at, err = events.ParseOffset(args[1])
			}
			if err != nil {
				return err
			}
			return riding(cmd.Context(), a, a.OpenExisting, func(s *store) error { return seen(cmd.Context(), a, s, args[0], at) })
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
func seen(ctx context.Context, a *cmdutil.App, s *store, receiver string, at events.Offset) error {
	var row seenUpto
	err := s.do(ctx, func(st *tally.Store) (err error) {
		if receiver, err = receiverNamed(ctx, a, st, receiver); err != nil {
			return err
		}
		in := tavern.InboxOf(st, receiver)
		row.Inbox = cli.ID(receiver)
		if err := known(ctx, a, in); err != nil {
			return err
		}
		if at == events.MaxOffset {
			if at, err = lastIn(ctx, in); err != nil {
				return err
			}
		}
		if err := in.Seen(ctx, at); !s.isStored(err) {
			return err
		}
		if row.Cursor, err = in.Cursor(ctx); err == nil {
			row.Unread, err = in.Unread(ctx)
		}
		return err
	})
	if beyond, ok := errors.AsType[*tavern.SeenError](err); ok {
		return &cli.CodeError{Code: cli.Conflict, Err: beyond, Hint: "What has not come cannot be seen: " + cmdutil.Last + " stands for the last message that is there."}
	}
	if err != nil {
		return err
	}
	if a.Format != cli.Text {
		return cli.WriteJSON(a.Out, a.Format, row)
	}
	return a.Say("%s has seen what is up to %v; %s left.", plain.Printable(row.Inbox), row.Cursor, plain.Count(row.Unread, "message"))
}

// lastIn returns where the last message of an inbox is, 0 if there is none. With an error,
// that is not known.
func lastIn(ctx context.Context, in *tavern.Inbox) (events.Offset, error) {
	list, _, err := in.List(ctx, tavern.Page{Newest: true, Limit: 1})
	switch {
	case err != nil:
		return events.MaxOffset, err
	case len(list) == 0:
		return 0, nil
	}
	return list[0].Offset, nil
}
