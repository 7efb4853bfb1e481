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

func newInboxAck(a *cmdutil.App) *cobra.Command {
	return &cobra.Command{
		Use: "ack INBOX OFFSET|last", Short: "Mark the messages of an inbox as read", Args: cobra.ExactArgs(2),
		Long: `Mark the messages of an inbox as read, up to the message at an offset or up to the last
one. The mark never moves back: an earlier offset has no effect.`,
		Example: cmdutil.Examples("tally inbox ack user last", "tally inbox ack kettle @118", "tally inbox ack kettle @118 -o json"),
		RunE: func(cmd *cobra.Command, args []string) error {
			at, err := events.MaxOffset, error(nil)
			if args[1] != cmdutil.Last {
				at, err = events.ParseOffset(args[1])
			}
			if err != nil {
				return err
			}
			return riding(cmd.Context(), a, a.OpenExisting, func(s *store) error { return ack(cmd.Context(), a, s, args[0], at) })
		},
	}
}

// ackedRow is the output of inbox ack, with -o json.
type ackedRow struct {
	Inbox  string        `json:"inbox"`
	Cursor events.Offset `json:"cursor"`
	Unread int           `json:"unread"`
}

// ack moves the cursor of an inbox forward. The greatest offset stands for the last message.
func ack(ctx context.Context, a *cmdutil.App, s *store, receiver string, at events.Offset) error {
	var row ackedRow
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
		return &cli.CodeError{Code: cli.Conflict, Err: beyond, Hint: "No message is at that offset yet: " + cmdutil.Last + " stands for the last message of the inbox."}
	}
	if err != nil {
		return err
	}
	if a.Format != cli.Text {
		return cli.WriteJSON(a.Out, a.Format, row)
	}
	return a.Say("%s has read the messages up to %v; %s unread.", plain.Printable(row.Inbox), row.Cursor, plain.Count(row.Unread, "message"))
}

// lastIn returns the offset of the last message of an inbox, 0 if the inbox is empty. With an error it returns
// MaxOffset.
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
