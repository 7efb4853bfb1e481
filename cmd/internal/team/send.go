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

func newSend(a *cmdutil.App) *cobra.Command {
	s := &sender{app: a, format: "text"}
	cmd := &cobra.Command{
		Use: "send TO [FILE|-]", Short: "Send a message to an agent, a program or the user", Args: cobra.RangeArgs(1, 2),
		Long: `Send a message: the text of a file, or of standard input, without a line's end that
it ends with. With --format json it is JSON, and is kept as it stands.

TO is an agent, by its id, a beginning of that or its name; user (the person); or a
program whose inbox was opened (attend --open). When send is done, the message is on disk in the inbox, once and in
its order. One that goes past the tree of agents is told to the parents in between.
Who does not exist is exit code 4, and so is who is archived or stopped; nothing is
written then.

--expects or --within asks for an answer; that there was none in time, the sender
is told in its own inbox, by whoever looks after deadlines. --reply-to answers a
message of the sender's inbox: in its thread, with the type that is expected unless
--type says another, and once: the same answer again is the one that was sent.`,
		Example: cmdutil.Examples("echo 'The build is red again.' | tally send kettle --thread build",
			"tally send kettle question.md --type question --expects answer --within 10m",
			"echo 'Use v2.' | tally send tern --from kettle --reply-to 0199a3f0-5d3c-7000-8000-2b1c6f1d9a3e",
			"echo '{\"state\":\"green\"}' | tally send ci --from kettle --type status --format json --key build-812 -o json"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			s.To = args[0]
			if s.Body, err = s.body(args[1:]); err != nil {
				return err
			}
			s.says = cmd.Flags().Changed
			open := a.OpenExisting // where there is no store, there is nobody
			if s.To == tavern.User {
				open = a.Open
			}
			return riding(cmd.Context(), a, open, func(in *store) error { return s.send(cmd.Context(), in) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&s.From, "from", tavern.User, "who sends it: an agent, or any name")
	f.StringVar(&s.Type, "type", "message", "type, such as message, question or status; of an answer (default) what is expected")
	f.StringVar(&s.Thread, "thread", "main", "what it is about: any name; of an answer (default) that of the message")
	f.StringVar(&s.ReplyTo, "reply-to", "", "id of the message that it answers, which is in the sender's inbox")
	f.StringVar(&s.Expects, "expects", "", "type of the answer that is awaited")
	f.StringVar(&s.within, "within", "", "until when an answer is awaited: how long from now, such as 10m or 24h, or a time")
	f.Var(cli.OneOf(&s.Class, "class", "quick", "deep"), "class", "of a question: quick or deep")
	f.StringVar(&s.Key, "key", "", "id of this sending: again with the same key, after an unknown outcome, it is one message")
	f.Var(cli.OneOf(&s.format, "format", "text", "json"), "format", "what the body is: text or json")
	return cmd
}

// sender sends one message.
type sender struct {
	app *cmdutil.App
	tavern.Message

	within, format string
	says           func(flag string) bool
}

// sent is what send prints with -o json.
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

// body reads what is to be sent.
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
		return nil, cli.Usagef("the message is not text in UTF-8: put it into a document, and send that one's name")
	}
	text := bytes.TrimSuffix(bytes.TrimSuffix(data, []byte("\n")), []byte("\r"))
	if len(text) == 0 {
		return nil, cli.Usagef("the message is empty")
	}
	return tavern.Text(string(text)), nil
}

func (s *sender) send(ctx context.Context, in *store) (err error) {
	if s.Deadline, err = until(ctx, in, "within", s.within); err != nil {
		return err
	}
	if s.Key == "" && s.ReplyTo == "" {
		s.ID = in.now().Log.NewID() // sent again it is one message
	}
	var m tavern.Message
	err = in.do(ctx, func(st *tally.Store) error {
		for _, who := range []*string{&s.To, &s.From} {
			if *who, err = receiverNamed(ctx, s.app, st, *who); err != nil {
				return err
			}
		}
		m, err = s.deliver(ctx, st)
		return err
	})
	if err != nil {
		return s.refused(err)
	}
	promise := in.now().Log.Durability()
	if s.app.Format == cli.Text {
		return s.app.Say("Sent %s to %s: %v, %s.", plain.Printable(cli.ID(m.ID)), plain.Printable(cli.ID(m.To)), m.Offset, promise)
	}
	return cli.WriteJSON(s.app.Out, s.app.Format, sent{cli.ID(m.To), cli.ID(m.ID), m.Offset, cli.ID(m.From), m.Type, m.Thread, stamp(m.Deadline), promise.String()})
}

// deliver sends the message, or the answer that it is.
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
		return to, cli.Usagef("message %q is from %q: the answer goes there, and not to %q", s.ReplyTo, to.From, s.To)
	}
	answer := s.Message
	for flag, text := range map[string]*string{"type": &answer.Type, "thread": &answer.Thread} {
		if !s.says(flag) {
			*text = ""
		}
	}
	return in.Reply(ctx, to, answer)
}

// refused says what to do about a message that was not sent.
func (s *sender) refused(err error) error {
	if errors.Is(err, tally.ErrExists) {
		return &cli.CodeError{Code: cli.Conflict, Err: fmt.Errorf("%w: nothing was sent", err)}
	}
	nobody, ok := errors.AsType[*tavern.ReceiverError](err)
	if !ok {
		return err
	}
	name := cli.ID(nobody.Receiver)
	e := &cli.CodeError{Code: cli.NotFound, Err: fmt.Errorf("there is no receiver %q: nothing was sent", name), Hint: fmt.Sprintf(
		"Receivers are agents, user, and programs that %s attend%s %s --open -- COMMAND lets in.", cmdutil.Program(), s.app.StoreFlags(), cmdutil.Quoted(name))}
	if nobody.Status != "" {
		e.Err = fmt.Errorf("%q gets no messages any more, it is %s: nothing was sent", name, nobody.Status)
		e.Hint = "What is in its inbox can be read."
	}
	if nobody.Receiver == s.From && nobody.Receiver != s.To {
		e.Err = fmt.Errorf("%q awaits an answer and could not get it: %w", name, e.Err)
	}
	return e
}
