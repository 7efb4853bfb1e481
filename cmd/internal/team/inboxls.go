package team

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/tavern"
)

func newInboxLs(a *cmdutil.App) *cobra.Command {
	v := &inboxView{app: a}
	after := ""
	cmd := &cobra.Command{
		Use: "ls INBOX", Short: "List the messages of an inbox", Args: cobra.ExactArgs(1),
		Long: `List the messages of an inbox, the newest first. A dot marks unread messages. Listing
does not mark them as read: tally inbox ack does. With --unread only unread messages are
listed, the oldest first.

NOTE has the state of a message: replied, if the receiver answered it; overdue, if it
expects an answer and the deadline has passed; or its purpose, such as a newer text of
another message, or a malfunction.`,
		Example: cmdutil.Examples("tally inbox ls user --unread",
			"tally inbox ls kettle --message 0199a3f0-5d3c-7000-8000-2b1c6f1d9a3e", "tally inbox ls kettle --follow --after @0 -o jsonl"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if v.limit < 1 {
				return cli.Usagef("--limit %d: want a number from 1", v.limit)
			}
			if v.unread && v.follow || v.message != "" && (v.unread || v.follow) {
				return cli.Usagef("want one of --unread, --message and --follow")
			}
			if v.follow && !cmd.Flags().Changed("limit") {
				v.limit = 0
			}
			if v.said = after != ""; v.said {
				if v.after, err = events.ParseOffset(after); err != nil {
					return err
				}
			}
			return a.WithExisting(cmd.Context(), func(st *tally.Store) error { return v.show(cmd.Context(), st, args[0]) })
		},
	}
	f := cmd.Flags()
	f.BoolVar(&v.unread, "unread", false, "only unread messages, the oldest first")
	f.StringVar(&v.message, "message", "", "the whole message with this id, with its newest text")
	f.BoolVarP(&v.follow, "follow", "f", false, "print messages as they arrive, until interrupted")
	f.StringVar(&after, "after", "", "the next page: continue after the message at this offset; with --follow start after it, @0 for all messages")
	f.IntVar(&v.limit, "limit", 50, "list at most this many; with --follow end after this many (default no limit)")
	return cmd
}

// inboxView lists the messages of an inbox.
type inboxView struct {
	app            *cmdutil.App
	unread, follow bool
	message        string
	after          events.Offset
	said           bool // --after is set
	limit          int

	st     *tally.Store
	in     *tavern.Inbox
	cursor events.Offset
	now    time.Time // the log's time
}

func (v *inboxView) show(ctx context.Context, st *tally.Store, receiver string) (err error) {
	if receiver, err = receiverNamed(ctx, v.app, st, receiver); err != nil {
		return err
	}
	v.st, v.in = st, tavern.InboxOf(st, receiver)
	if err := known(ctx, v.app, v.in); err != nil {
		return err
	}
	if v.cursor, err = v.in.Cursor(ctx); projector.Tolerate(err) != nil {
		return err
	}
	if v.now, err = st.LogTime(ctx); err != nil {
		return err
	}
	switch {
	case v.message != "":
		m, err := v.in.Message(ctx, v.message)
		if err != nil {
			return err
		}
		return v.whole(ctx, m)
	case v.follow:
		return v.watch(ctx)
	}
	return v.list(ctx)
}

// known returns an error with code NotFound if the receiver is not the user and neither its inbox nor its agent exists.
func known(ctx context.Context, a *cmdutil.App, in *tavern.Inbox) error {
	if in.Receiver() == tavern.User {
		return nil
	}
	agent := in.Session().Store().Session(events.KindAgent + "/" + in.Receiver())
	for _, s := range []*tally.Session{in.Session(), agent} {
		if err := s.Subject().Validate(); err != nil {
			return err
		}
		_, err := in.Session().Store().Log.Last(ctx, s.Subject())
		if !errors.Is(err, events.ErrNotFound) {
			return err // nil: it exists
		}
	}
	name := cli.ID(in.Receiver())
	return &cli.CodeError{Code: cli.NotFound, Err: fmt.Errorf("there is no inbox %q in namespace %s, and no agent of that id", name, in.Session().Subject().Namespace),
		Hint: fmt.Sprintf("%s agent ls%s lists the agents.", cmdutil.Program(), a.StoreFlags())}
}

// receiverNamed returns the receiver that a word names: the receiver with this id, else the agent with this name, or with
// an id that begins with the word. If there is no such agent it returns the word, which may be the id of a new receiver.
func receiverNamed(ctx context.Context, a *cmdutil.App, st *tally.Store, word string) (string, error) {
	switch err := known(ctx, a, tavern.InboxOf(st, word)); {
	case err == nil:
		return word, nil
	case cli.ExitCode(err) != cli.NotFound:
		return word, err
	}
	agent, err := agentNamed(ctx, a, st, word)
	switch {
	case err == nil:
		return agent.ID(), nil
	case cli.ExitCode(err) == cli.NotFound:
		return word, nil
	}
	return word, err
}

// messageRow is a row of inbox ls, with -o json.
type messageRow struct {
	ID          string                `json:"id"`
	Offset      events.Offset         `json:"offset"`
	Time        events.Timestamp      `json:"time"` // of its record
	Unread      bool                  `json:"unread"`
	From        string                `json:"from"`
	To          string                `json:"to"`
	Type        string                `json:"type"`
	Thread      string                `json:"thread"`
	ReplyTo     string                `json:"replyTo,omitempty"`
	Correlation string                `json:"correlation,omitempty"`
	Expects     string                `json:"expects,omitempty"`
	Deadline    events.Timestamp      `json:"deadline,omitempty"`
	Class       string                `json:"class,omitempty"`
	Bubble      []string              `json:"bubble,omitempty"`
	Replied     events.Offset         `json:"replied,omitempty"` // of the first answer
	Overdue     bool                  `json:"overdue,omitempty"`
	Amends      string                `json:"amends,omitempty"`
	Revision    events.Offset         `json:"revision,omitempty"` // of its newest text, if it was amended
	About       *projector.MessageRef `json:"about,omitempty"`
	Malfunction string                `json:"malfunction,omitempty"`
	Malformed   string                `json:"malformed,omitempty"`
	Body        events.Raw            `json:"body,omitempty"`
	Bytes       []byte                `json:"bytes,omitempty"` // of a message that is not JSON
	Next        events.Offset         `json:"next,omitempty"`  // in the last row of a page: the value of --after for the next page
}

func (v *inboxView) row(m tavern.Message, replied events.Offset) messageRow {
	row := messageRow{ID: cli.ID(m.ID), Offset: m.Offset, Time: events.TimestampOf(m.Recorded), Unread: m.Offset > v.cursor,
		From: cli.ID(m.From), To: cli.ID(m.To), Type: m.Type, Thread: m.Thread, ReplyTo: cli.ID(m.ReplyTo), Correlation: m.Correlation, Expects: m.Expects, Class: m.Class, Bubble: m.Bubble, Replied: replied, Amends: m.Amends,
		About: m.About, Malfunction: m.Malfunction, Malformed: m.Malformed, Body: m.Body, Bytes: m.Bytes}
	if m.Revision != m.Offset {
		row.Revision = m.Revision
	}
	if row.Deadline = stamp(m.Deadline); row.Deadline != "" {
		row.Overdue = replied == 0 && m.Amends == "" && m.Deadline.Before(v.now)
	}
	return row
}

// note returns the text of the column NOTE.
func (r messageRow) note() string {
	switch {
	case r.Malformed != "":
		return "malformed"
	case r.Malfunction != "":
		return "malfunction: " + r.Malfunction
	case r.Amends != "":
		return "amends " + r.Amends
	case r.Replied > 0:
		return "replied " + r.Replied.String()
	case r.Overdue:
		return "overdue"
	case r.Deadline != "":
		return "until " + cli.Minute(r.Deadline)
	case r.Expects != "":
		return "awaits " + r.Expects
	case r.ReplyTo != "":
		return "answers " + r.ReplyTo
	}
	return ""
}

// answers returns the offsets of the first answers to messages of the inbox. It reads them from the view: without it,
// the inboxes of all senders would have to be read.
func (v *inboxView) answers(ctx context.Context, list []tavern.Message) (map[messageKey]events.Offset, error) {
	found := make(map[messageKey]events.Offset)
	if len(list) == 0 {
		return found, nil
	}
	at := func(x, y tavern.Message) int { return cmp.Compare(x.Offset, y.Offset) }
	first, last := slices.MinFunc(list, at).Offset, slices.MaxFunc(list, at).Offset
	err := v.app.WithWork(ctx, v.st, func(r catalog.WorkReader) error {
		q := catalog.MessageQuery{Namespace: v.st.Namespace(), Receiver: v.in.Receiver(), After: first - 1, Number: math.MaxInt32, Limit: len(list)}
		for {
			page, err := r.Messages(ctx, q)
			if err != nil {
				return err
			}
			for _, m := range page {
				if m.Answered > 0 {
					found[messageKey{m.Offset, m.ID}] = m.Answered
				}
				q.After, q.Number = m.Offset, m.Number
			}
			if len(page) < q.Limit || q.After > last {
				return nil
			}
		}
	})
	return found, err
}

// messageKey names a message of an inbox.
type messageKey struct {
	at events.Offset
	id string
}

// rows returns the rows for messages.
func (v *inboxView) rows(ctx context.Context, list []tavern.Message) ([]messageRow, error) {
	answered, err := v.answers(ctx, list)
	if err != nil {
		return nil, err
	}
	rows := make([]messageRow, len(list))
	for i, m := range list {
		rows[i] = v.row(m, answered[messageKey{m.Offset, m.ID}])
	}
	return rows, nil
}

func (v *inboxView) list(ctx context.Context) error {
	page := tavern.Page{After: v.after, Limit: v.limit, Newest: !v.unread}
	if v.unread {
		page.After = max(v.after, v.cursor)
	}
	found, next, err := v.in.List(ctx, page)
	err = projector.Tolerate(err)
	if err != nil {
		return err
	}
	rows, err := v.rows(ctx, found)
	if err != nil {
		return err
	}
	if len(rows) > 0 {
		rows[len(rows)-1].Next = next
	}
	err = printRows(v.app, rows, "No messages.", func() (render.Table, error) { return inboxTable(rows, v.app.Style()), nil })
	if err != nil || v.app.Format != cli.Text {
		return err
	}
	unread, err := v.in.Unread(ctx)
	if err == nil && unread > 0 {
		fmt.Fprintf(v.app.Err, "%s unread\n", plain.Count(unread, "message"))
	}
	if next > 0 {
		fmt.Fprintf(v.app.Err, "--after %v shows more\n", next)
	}
	return err
}

// watch prints messages as they arrive.
func (v *inboxView) watch(ctx context.Context) error {
	if !v.said {
		var err error
		if v.after, err = v.st.Log.Durable(ctx); err != nil {
			return err
		}
	}
	damaged, printed := false, 0
	for m, err := range v.in.Follow(ctx, v.after) {
		if damage, ok := errors.AsType[*events.DamageError](err); ok {
			damaged = true
			fmt.Fprintln(v.app.Err, plain.Printable(damage.Error()))
			continue
		}
		if err == nil {
			err = v.print(v.row(m, 0))
		}
		if err != nil {
			return err
		}
		if printed++; printed == v.limit {
			break
		}
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case damaged:
		return cli.Silent(cli.Integrity)
	}
	return nil
}
