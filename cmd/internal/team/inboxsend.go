package team

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/stores/tavern"
)

func newInboxSend(a *cmdutil.App) *cobra.Command {
	s := &sender{app: a, format: "text"}
	cmd := &cobra.Command{
		Use: "send TO [FILE|-]", Short: "Send a message to an agent, a program or the user", Args: cobra.RangeArgs(1, 2),
		Long: `Send a message to an agent, a program or the user: the text of a file or of standard
input, without the line end at its end. With --format json the message is JSON, and is
stored byte for byte.

TO is an agent's id, a beginning of it or the agent's name; user (the person); or a program
that inbox run --open has registered. When the command ends, the message is on disk in the
inbox, exactly once. A message to an agent that is neither parent nor child of the sender is
also reported to the parents between them. If the receiver does not exist, is archived or is
stopped, nothing is written and the exit code is 4.

--expects or --within asks for an answer. If the answer is late, tally serve or tally daemon
sends a notice to the inbox of the sender. --reply-to answers a message of the sender's inbox,
in the thread of that message and with the type that it expects, unless --type sets another.
A repeated answer with the same content is not sent again.`,
		Example: cmdutil.Examples("echo 'The build is red again.' | tally inbox send kettle --thread build",
			"tally inbox send kettle question.md --type question --expects answer --within 10m",
			"echo 'Use v2.' | tally inbox send tern --from kettle --reply-to 0199a3f0-5d3c-7000-8000-2b1c6f1d9a3e",
			"echo '{\"state\":\"green\"}' | tally inbox send ci --from kettle --type status --format json --key build-812 -o json"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			s.To = args[0]
			if s.Body, err = s.body(args[1:]); err != nil {
				return err
			}
			s.says = cmd.Flags().Changed
			open := a.OpenExisting // a new store has no receiver but the user
			if s.To == tavern.User {
				open = a.Open
			}
			return riding(cmd.Context(), a, open, func(in *store) error { return s.send(cmd.Context(), in) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&s.From, "from", tavern.User, "sender: an agent, or any name")
	f.StringVar(&s.Type, "type", "message", "type, such as message, question or status; an answer has the expected type by default")
	f.StringVar(&s.Thread, "thread", "main", "name of the topic; an answer has the thread of the question by default")
	f.StringVar(&s.ReplyTo, "reply-to", "", "id of the message to answer, in the inbox of the sender")
	f.StringVar(&s.Expects, "expects", "", "type of the expected answer")
	f.StringVar(&s.within, "within", "", "deadline for the answer: a duration from now, such as 10m or 24h, or a time")
	f.Var(cli.OneOf(&s.Class, "class", "quick", "deep"), "class", "kind of question: quick or deep")
	f.StringVar(&s.Key, "key", "", "idempotency key: a second send with the same key is the same message")
	f.Var(cli.OneOf(&s.format, "format", "text", "json"), "format", "format of the body: text or json")
	return cmd
}

// sender sends one message.
type sender struct {
	app *cmdutil.App
	tavern.Message

	within, format string
	says           func(flag string) bool
}

// sent is the output of inbox send, with -o json.
type sent struct {
	To         string           `json:"to"`
	ID         string           `json:"id"`
	Offset     events.Offset    `json:"offset"`
	From       string           `json:"from"`
	Type       string           `json:"type"`
	Thread     string           `json:"thread"`
	Deadline   events.Timestamp `json:"deadline,omitempty"`
	Durability string           `json:"durability"`
}

// body reads the message.
func (s *sender) body(args []string) (events.Raw, error) {
	data, err := s.app.Content(args)
	switch {
	case err != nil:
		return nil, err
	case s.format == "json":
		data = rawjson.Trim(data)
		if err := rawjson.Check(data); err != nil {
			return nil, cli.Usagef("the message is not JSON: %w", err)
		}
		return data, nil
	case !utf8.Valid(data):
		return nil, cli.Usagef("the message is not text in UTF-8: store it with tally doc put, and send the document's name")
	}
	text := bytes.TrimSuffix(bytes.TrimSuffix(data, []byte("\n")), []byte("\r"))
	if len(text) == 0 {
		return nil, cli.Usagef("the message is empty")
	}
	return tavern.Text(string(text)), nil
}

func (s *sender) send(ctx context.Context, in *store) (err error) {
	if s.Deadline, err = timeFrom(ctx, in, "within", s.within); err != nil {
		return err
	}
	if s.Key == "" && s.ReplyTo == "" {
		s.ID = in.Store().Log.NewID() // the id makes a repeated append idempotent
	}
	var m tavern.Message
	err = in.do(ctx, func(st *tally.Store) error {
		for _, name := range []*string{&s.To, &s.From} {
			if *name, err = receiverNamed(ctx, s.app, st, *name); err != nil {
				return err
			}
		}
		m, err = s.deliver(ctx, st)
		return err
	})
	if err != nil {
		return s.refused(err)
	}
	promise := in.Store().Log.Durability()
	if s.app.Format == cli.Text {
		return s.app.Say("Sent %s to %s: %v, %s.", plain.Printable(cli.ID(m.ID)), plain.Printable(cli.ID(m.To)), m.Offset, promise)
	}
	return cli.WriteJSON(s.app.Out, s.app.Format, sent{cli.ID(m.To), cli.ID(m.ID), m.Offset, cli.ID(m.From), m.Type, m.Thread, stamp(m.Deadline), promise.String()})
}

// deliver sends the message, with --reply-to as an answer.
func (s *sender) deliver(ctx context.Context, st *tally.Store) (tavern.Message, error) {
	if s.ReplyTo == "" {
		return tavern.InboxOf(st, s.To).Send(ctx, s.Message)
	}
	in := tavern.InboxOf(st, s.From)
	to, err := in.Message(ctx, s.ReplyTo)
	if err != nil {
		return tavern.Message{}, err
	}
	if to.From != s.To {
		return to, cli.Usagef("message %q is from %q: the answer must go to its sender, not to %q", s.ReplyTo, to.From, s.To)
	}
	answer := s.Message
	for flag, text := range map[string]*string{"type": &answer.Type, "thread": &answer.Thread} {
		if !s.says(flag) {
			*text = ""
		}
	}
	return in.Reply(ctx, to, answer)
}

// refused adds hints to the errors of a message that was not sent.
func (s *sender) refused(err error) error {
	if errors.Is(err, tally.ErrExists) {
		return &cli.CodeError{Code: cli.Conflict, Err: fmt.Errorf("%w: nothing was sent", err)}
	}
	missing, ok := errors.AsType[*tavern.ReceiverError](err)
	if !ok {
		return err
	}
	name := cli.ID(missing.Receiver)
	e := &cli.CodeError{Code: cli.NotFound, Err: fmt.Errorf("there is no receiver %q: nothing was sent", name), Hint: fmt.Sprintf(
		"Receivers are agents, user, and programs that %s inbox run%s %s --open -- COMMAND registers.", cmdutil.Program(), s.app.StoreFlags(), cmdutil.Quoted(name))}
	if missing.Status != "" {
		e.Err = fmt.Errorf("%q is %s and gets no more messages: nothing was sent", name, missing.Status)
		e.Hint = "Its inbox can still be read."
	}
	if missing.Receiver == s.From && missing.Receiver != s.To {
		e.Err = fmt.Errorf("the sender %q could not receive the answer: %w", name, e.Err)
	}
	return e
}
