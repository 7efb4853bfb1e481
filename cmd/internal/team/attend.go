package team

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/tavern"
)

func newAttend(a *cmdutil.App) *cobra.Command {
	t := &attender{app: a}
	cmd := &cobra.Command{
		Use: "attend INBOX -- COMMAND [ARGUMENT]...", Short: "Run a command for each message of an inbox", Args: cobra.MinimumNArgs(2),
		Long: `Run a command for each message of an inbox, one after the other in the order in which
they came, from the first one that was not seen on, until interrupted. The command
gets the message on its standard input: a text as it was written, else its JSON. In
its environment are

  TALLY_INBOX     whose inbox it is
  TALLY_MESSAGE   the message's id: what send --reply-to and inbox --message take
  TALLY_FROM      who sent it
  TALLY_TYPE      its type
  TALLY_THREAD    what it is about

Exit code 0 says that the message was seen. With another one, it was refused: it is
handed over again, after a second and then twice as long each time, up to 5 minutes,
also by another attend than this one; those behind it wait. After eight refusals its
sender is told. So a message is handed over at least once: if tally is ended just
when the command was done, it is so once more.

If the command cannot be started for a message, that counts as a refusal. After eight
of them, or at once if an id, a type or a thread is too long for a variable, the
message is dead: it is named, its sender is told, and those behind it are handed over.

Nothing of a message is ever run: the command is what stands behind --, and reads the
message from its standard input. A script that puts the text into a command line lets
the sender choose that program's options. The command's output is passed on. When
tally is interrupted, the command is told to end, and has 5 seconds.`,
		Example: cmdutil.Examples(`tally attend kettle -- sh -c 'claude -p | tally send --from kettle --reply-to "$TALLY_MESSAGE" -- "$TALLY_FROM"'`,
			"tally attend ci --open -- ./on-message", "tally attend user --until-empty -- notify-send Tally"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := behindDash(cmd, 1); err != nil {
				return err
			}
			t.receiver, t.command = args[0], args[1:]
			return t.attend(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.BoolVar(&t.open, "open", false, "let in a receiver that is not an agent, such as a program: from then on others can send to it")
	f.BoolVar(&t.once, "once", false, "hand over one message, waiting for it if there is none, and end: with code 1 if it was refused")
	f.BoolVar(&t.untilEmpty, "until-empty", false, "end when all messages were seen, rather than to wait for more")
	return cmd
}

// attender hands the messages of an inbox to a command.
type attender struct {
	app                    *cmdutil.App
	receiver               string
	command                []string
	open, once, untilEmpty bool

	store *store
}

// handed is what became of handing over a message: a line of attend with -o json.
type handed struct {
	Inbox    string           `json:"inbox"`
	ID       string           `json:"id"`
	Offset   events.Offset    `json:"offset"`
	Outcome  string           `json:"outcome"` // seen, refused, dead or stopped
	Exit     int              `json:"exit"`
	Signal   string           `json:"signal,omitempty"`
	Error    string           `json:"error,omitempty"`
	Refusals int              `json:"refusals,omitempty"` // of this message so far
	Next     events.Timestamp `json:"next,omitempty"`     // when it is tried again
	Seconds  float64          `json:"seconds"`
}

func (t *attender) attend(ctx context.Context) (err error) {
	if err := check(t.command); err != nil {
		return err
	}
	if t.store, err = openStore(ctx, t.app); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.store.Close()) }()
	if err := t.store.do(ctx, func(st *tally.Store) error { return t.enter(ctx, st) }); err != nil {
		return err
	}
	for {
		m, err := t.next(ctx)
		if err != nil || m == nil {
			return t.end(ctx, err)
		}
		seen, err := t.handOver(ctx, *m)
		switch {
		case err != nil || ctx.Err() != nil:
			return t.end(ctx, err)
		case t.once && !seen:
			return cli.Silent(cli.Failed)
		case t.once:
			return nil
		}
	}
}

// end says what the command comes to.
func (t *attender) end(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// enter sees to it that there is an inbox.
func (t *attender) enter(ctx context.Context, st *tally.Store) (err error) {
	if t.receiver, err = receiverNamed(ctx, t.app, st, t.receiver); err != nil {
		return err
	}
	in := tavern.InboxOf(st, t.receiver)
	err = known(ctx, t.app, in)
	if err == nil || !t.open {
		if code, ok := errors.AsType[*cli.CodeError](err); ok {
			code.Hint = "With --open it is made one of a program."
		}
		return err
	}
	if cli.ExitCode(err) != cli.NotFound {
		return err
	}
	return in.Open(ctx, "")
}

// letters are the messages that one record brought, which are seen together.
type letters struct {
	list []tavern.Message
	last projector.Letter
}

// next waits for the messages behind the cursor; nil: there are none, and none is waited for.
func (t *attender) next(ctx context.Context) (found *letters, err error) {
	err = t.store.do(ctx, func(st *tally.Store) error {
		in := tavern.InboxOf(st, t.receiver)
		cursor, err := in.Cursor(ctx)
		if err != nil {
			return err
		}
		found, err = t.behind(ctx, st, in, cursor)
		if err != nil || found != nil || t.untilEmpty {
			return err
		}
		for _, err := range in.Follow(ctx, cursor) {
			if cli.Is[*events.DamageError](err) {
				fmt.Fprintln(t.app.Err, plain.Printable(err.Error()))
				continue // it is passed over with the next one that is seen
			}
			if err != nil {
				return err
			}
			found, err = t.behind(ctx, st, in, cursor)
			return err
		}
		return nil // interrupted
	})
	return found, err
}

// behind returns the first messages behind an offset, nil if there are none.
func (t *attender) behind(ctx context.Context, st *tally.Store, in *tavern.Inbox, cursor events.Offset) (*letters, error) {
	list, _, err := in.List(ctx, tavern.Page{After: cursor, Limit: 1})
	if err != nil || len(list) == 0 {
		return nil, err
	}
	rec, err := st.Log.Record(ctx, list[0].Offset)
	if err == nil {
		rec, err = projector.Resolve(ctx, st.Log, rec, st.MaxValue())
	}
	if err != nil {
		return nil, err
	}
	all := projector.LettersOf(projector.Decode(rec))
	return &letters{list, all[len(all)-1]}, nil
}

// handOver runs the command for messages when it is time to, and notes what it said. It
// reports whether they were seen.
func (t *attender) handOver(ctx context.Context, ms letters) (bool, error) {
	if seen, err := t.wait(ctx, ms); err != nil || seen {
		return seen, err
	}
	var rows []handed
	for _, m := range ms.list {
		e, err := t.run(ctx, m)
		if unstarted, ok := errors.AsType[*unstartedError](err); ok {
			return false, t.unstarted(ctx, ms.last, handed{ID: m.ID, Offset: m.Offset, Error: unstarted.reason}, unstarted.final)
		}
		if err != nil {
			return false, err
		}
		row := handed{ID: m.ID, Offset: m.Offset, Outcome: "seen", Exit: e.exit, Signal: e.signal, Seconds: e.took.Seconds()}
		switch {
		case e.stopped:
			row.Outcome = "stopped"
			return false, t.say(row)
		case !e.ok():
			row.Outcome, row.Error = "refused", e.reason()
			return false, t.refused(ctx, ms.last, row)
		}
		rows = append(rows, row)
	}
	// What the command did is done, also when this is to end meanwhile.
	last, cancel := lastWord(ctx)
	defer cancel()
	err := t.store.do(last, func(st *tally.Store) error { return tavern.InboxOf(st, t.receiver).Seen(last, ms.last.Offset) })
	for _, row := range rows {
		if err == nil {
			err = t.say(row)
		}
	}
	return err == nil, err
}

// wait waits until messages may be handed over that were refused before. It reports whether
// somebody else has seen them meanwhile.
func (t *attender) wait(ctx context.Context, ms letters) (seen bool, err error) {
	for {
		var wait time.Duration
		err := t.store.do(ctx, func(st *tally.Store) error {
			in := tavern.InboxOf(st, t.receiver)
			cursor, err := in.Cursor(ctx)
			if err != nil {
				return err
			}
			h, err := in.HandOver(ctx)
			if err != nil {
				return err
			}
			seen = cursor >= ms.last.Offset
			d, now, err := t.due(ctx, st, ms.last, h)
			wait = d.Next.Sub(now)
			return err
		})
		if err != nil || seen || wait <= 0 {
			return seen, err
		}
		if !pause(ctx, min(wait, time.Second)) {
			return false, context.Cause(ctx)
		}
	}
}

// due decides on messages of which some attempts were refused.
func (t *attender) due(ctx context.Context, st *tally.Store, l projector.Letter, h projector.HandOver) (tavern.Decision, time.Time, error) {
	asOf, err := st.Log.Durable(ctx)
	if err != nil {
		return tavern.Decision{}, time.Time{}, err
	}
	now, err := st.LogTime(ctx)
	if err != nil {
		return tavern.Decision{}, now, err
	}
	d, err := tavern.HandOverDue(st.Namespace(), l, h, asOf, now)
	return d, now, err
}

// run runs the command for a message.
func (t *attender) run(ctx context.Context, m tavern.Message) (ended, error) {
	out := t.app.Out
	if t.app.Format != cli.Text {
		out = t.app.Err // standard output has the lines
	}
	c := child{command: t.command, stdin: stdinOf(m), stdout: out, stderr: t.app.Err, env: []variable{{"TALLY_INBOX", t.receiver},
		{"TALLY_MESSAGE", m.ID}, {"TALLY_FROM", m.From}, {"TALLY_TYPE", m.Type}, {"TALLY_THREAD", m.Thread}}}
	return c.run(ctx)
}

// stdinOf is what a command gets of a message: a text as it was written, else its JSON, or
// its bytes.
func stdinOf(m tavern.Message) []byte {
	if text, err := rawjson.String(m.Body); err == nil {
		return []byte(text)
	}
	if len(m.Body) > 0 {
		return m.Body
	}
	return m.Bytes
}

// refused notes that a message was refused, and tells its sender if that was often.
func (t *attender) refused(ctx context.Context, l projector.Letter, row handed) error {
	err := t.store.do(ctx, func(st *tally.Store) error { return t.note(ctx, st, l, &row) })
	return errors.Join(err, t.say(row))
}

// note notes a refusal.
func (t *attender) note(ctx context.Context, st *tally.Store, l projector.Letter, row *handed) error {
	h, err := tavern.InboxOf(st, t.receiver).Refused(ctx, l.Offset, row.Error)
	if cli.Is[*tavern.SeenError](err) {
		return nil // somebody else took it meanwhile
	}
	if !t.store.isStored(err) {
		return err
	}
	d, _, err := t.due(ctx, st, l, h)
	if err == nil {
		_, err = d.Make(ctx, st)
	}
	row.Refusals, row.Next = h.Refusals, events.TimestampOf(d.Next)
	return err
}

// unstarted notes that the command cannot be started for a message, which is as good as a
// refusal. If that is final, or happened too often, the message is dead: its sender is told,
// it is passed over, and those behind it are handed over.
func (t *attender) unstarted(ctx context.Context, l projector.Letter, row handed, final bool) error {
	row.Outcome, row.Exit = "refused", notExecutable
	err := t.store.do(ctx, func(st *tally.Store) error {
		if err := t.note(ctx, st, l, &row); !t.store.isStored(err) || !final && row.Refusals < tavern.MaxRefusals {
			return err
		}
		row.Outcome, row.Next = "dead", ""
		if err := t.tell(ctx, st, l); !t.store.isStored(err) {
			return err
		}
		return tavern.InboxOf(st, t.receiver).Seen(ctx, l.Offset)
	})
	return errors.Join(err, t.say(row))
}

// tell tells the sender of a message that it is dead. What comes to the sender's inbox
// meanwhile makes it try again.
func (t *attender) tell(ctx context.Context, st *tally.Store, l projector.Letter) error {
	for range maxTells {
		d, _, err := t.due(ctx, st, l, projector.HandOver{At: l.Offset, Refusals: tavern.MaxRefusals, Last: events.TimestampOf(l.Recorded)})
		if err != nil || len(d.Parts) == 0 {
			return err
		}
		if made, err := d.Make(ctx, st); made || !events.IsStored(err) {
			return err
		}
	}
	return nil // somebody told it, or the inbox never rests
}

// maxTells is how often a sender is tried to be told.
const maxTells = 8

// say prints what became of a message: in text only what went wrong.
func (t *attender) say(row handed) error {
	row.Inbox, row.ID = cli.ID(t.receiver), cli.ID(row.ID)
	if t.app.Format != cli.Text {
		return cli.WriteJSON(t.app.Out, cli.JSONL, row)
	}
	if row.Outcome == "dead" {
		_, err := fmt.Fprintln(t.app.Err, plain.Printable(fmt.Sprintf("message %s at %v is dead and passed over: %s", projector.Cut(row.ID, maxNamed), row.Offset, row.Error)))
		return err
	}
	if row.Outcome != "refused" {
		return nil
	}
	text := fmt.Sprintf("message %s at %v was refused: %s", row.ID, row.Offset, row.Error)
	if at, ok := row.Next.Time(); ok {
		text += fmt.Sprintf("; again at %s", at.UTC().Format("15:04:05"))
	}
	_, err := fmt.Fprintln(t.app.Err, plain.Printable(text))
	return err
}

// maxNamed is how much of an id stands in a sentence, in bytes.
const maxNamed = 200

// lastWord returns a context in which what is done is noted: it outlives ctx for a while.
func lastWord(ctx context.Context) (context.Context, context.CancelFunc) {
	last, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(inTime, cancel) })
	return last, func() { stop(); cancel() }
}
