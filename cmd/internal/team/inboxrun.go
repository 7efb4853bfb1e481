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

func newInboxRun(a *cmdutil.App) *cobra.Command {
	t := &runner{app: a}
	cmd := &cobra.Command{
		Use: "run INBOX -- COMMAND [ARGUMENT]...", Short: "Run a command for each message of an inbox", Args: cobra.MinimumNArgs(2),
		Long: `Run a command for each unread message of an inbox, one at a time and in order, until
interrupted. The command reads the message from its standard input: a text as it was
written, anything else as JSON. Its environment has

  TALLY_INBOX     the receiver
  TALLY_MESSAGE   the message's id, as inbox send --reply-to and inbox ls --message take it
  TALLY_FROM      the sender
  TALLY_TYPE      the message's type
  TALLY_THREAD    the message's thread

If the command exits with code 0, the message is marked as read. With any other code the
message is refused: the command runs again after a second, then after twice the time, up to
5 minutes, also if another inbox run takes over. Later messages wait. After eight refusals the
sender gets a notice. Delivery is at least once: if tally is killed after the command
succeeded and before that is recorded, the command runs again.

If the command cannot be started, the message is refused too. After eight refusals of this
kind, or at once if an id, a type or a thread is too long for an environment variable, the
message is dead: tally prints its id, sends a notice to the sender, and goes on.

The message is only input: tally runs the command after --, and nothing else. A script that
puts the text into a command line lets its sender choose the options of that program. The
output of the command is passed on. When tally is interrupted, the command is told to end and
has 5 seconds.`,
		Example: cmdutil.Examples(`tally inbox run kettle -- sh -c 'claude -p | tally inbox send --from kettle --reply-to "$TALLY_MESSAGE" -- "$TALLY_FROM"'`,
			"tally inbox run ci --open -- ./on-message", "tally inbox run user --until-empty -- notify-send Tally"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkDash(cmd); err != nil {
				return err
			}
			t.receiver, t.command = args[0], args[1:]
			return t.runAll(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.BoolVar(&t.open, "open", false, "register a receiver that is not an agent, such as a program: others can send to it from then on")
	f.BoolVar(&t.once, "once", false, "run the command for one message and end, with exit code 1 if it was refused; waits for a message if none is unread")
	f.BoolVar(&t.untilEmpty, "until-empty", false, "end when no message is unread, instead of waiting for more")
	return cmd
}

// runner runs a command for the messages of an inbox.
type runner struct {
	app                    *cmdutil.App
	receiver               string
	command                []string
	open, once, untilEmpty bool

	store *store
}

// handedRow is the result of a command for a message: a row of inbox run, with -o json.
type handedRow struct {
	Inbox    string           `json:"inbox"`
	ID       string           `json:"id"`
	Offset   events.Offset    `json:"offset"`
	Outcome  string           `json:"outcome"` // seen, refused, dead or stopped
	Exit     int              `json:"exit"`
	Signal   string           `json:"signal,omitempty"`
	Error    string           `json:"error,omitempty"`
	Refusals int              `json:"refusals,omitempty"` // of this message so far
	Next     events.Timestamp `json:"next,omitempty"`     // time of the next attempt
	Seconds  float64          `json:"seconds"`
}

func (r *runner) runAll(ctx context.Context) (err error) {
	if err := check(r.command); err != nil {
		return err
	}
	if r.store, err = openStore(ctx, r.app); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.store.Close()) }()
	if err := r.store.do(ctx, func(st *tally.Store) error { return r.enter(ctx, st) }); err != nil {
		return err
	}
	for {
		m, err := r.next(ctx)
		if err != nil || m == nil {
			return r.end(ctx, err)
		}
		seen, err := r.handOver(ctx, *m)
		switch {
		case err != nil || ctx.Err() != nil:
			return r.end(ctx, err)
		case r.once && !seen:
			return cli.Silent(cli.Failed)
		case r.once:
			return nil
		}
	}
}

// end returns the error that ends the command: the cause of an interruption, else err.
func (r *runner) end(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// enter resolves the receiver, and with --open registers it.
func (r *runner) enter(ctx context.Context, st *tally.Store) (err error) {
	if r.receiver, err = receiverNamed(ctx, r.app, st, r.receiver); err != nil {
		return err
	}
	in := tavern.InboxOf(st, r.receiver)
	err = known(ctx, r.app, in)
	if err == nil || !r.open {
		if code, ok := errors.AsType[*cli.CodeError](err); ok {
			code.Hint = "With --open tally registers it as a program."
		}
		return err
	}
	if cli.ExitCode(err) != cli.NotFound {
		return err
	}
	return in.Open(ctx, "")
}

// letters are the messages of one record, which are marked as read together.
type letters struct {
	list []tavern.Message
	last projector.Letter
}

// next returns the first unread messages. If there are none, it waits for them; with --until-empty it returns nil.
func (r *runner) next(ctx context.Context) (found *letters, err error) {
	err = r.store.do(ctx, func(st *tally.Store) error {
		in := tavern.InboxOf(st, r.receiver)
		cursor, err := in.Cursor(ctx)
		if err != nil {
			return err
		}
		found, err = r.behind(ctx, st, in, cursor)
		if err != nil || found != nil || r.untilEmpty {
			return err
		}
		for _, err := range in.Follow(ctx, cursor) {
			if cli.Is[*events.DamageError](err) {
				fmt.Fprintln(r.app.Err, plain.Printable(err.Error()))
				continue // the next ack moves the cursor past the damaged record
			}
			if err != nil {
				return err
			}
			found, err = r.behind(ctx, st, in, cursor)
			return err
		}
		return nil // interrupted
	})
	return found, err
}

// behind returns the first messages after an offset, or nil.
func (r *runner) behind(ctx context.Context, st *tally.Store, in *tavern.Inbox, cursor events.Offset) (*letters, error) {
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

// handOver runs the command for messages once they are due, and records its answer. It reports whether the messages are
// read.
func (r *runner) handOver(ctx context.Context, ms letters) (bool, error) {
	if seen, err := r.wait(ctx, ms); err != nil || seen {
		return seen, err
	}
	var rows []handedRow
	for _, m := range ms.list {
		e, err := r.run(ctx, m)
		if unstarted, ok := errors.AsType[*unstartedError](err); ok {
			return false, r.unstarted(ctx, ms.last, handedRow{ID: m.ID, Offset: m.Offset, Error: unstarted.reason}, unstarted.final)
		}
		if err != nil {
			return false, err
		}
		row := handedRow{ID: m.ID, Offset: m.Offset, Outcome: "seen", Exit: e.exit, Signal: e.signal, Seconds: e.took.Seconds()}
		switch {
		case e.stopped:
			row.Outcome = "stopped"
			return false, r.say(row)
		case !e.ok():
			row.Outcome, row.Error = "refused", e.reason()
			return false, r.refused(ctx, ms.last, row)
		}
		rows = append(rows, row)
	}
	// The command has succeeded: this is recorded even after an interruption.
	last, cancel := lastWord(ctx)
	defer cancel()
	err := r.store.do(last, func(st *tally.Store) error { return tavern.InboxOf(st, r.receiver).Seen(last, ms.last.Offset) })
	for _, row := range rows {
		if err == nil {
			err = r.say(row)
		}
	}
	return err == nil, err
}

// wait waits until messages that were refused are due again. It reports whether another process has marked them as read
// meanwhile.
func (r *runner) wait(ctx context.Context, ms letters) (seen bool, err error) {
	for {
		var wait time.Duration
		err := r.store.do(ctx, func(st *tally.Store) error {
			in := tavern.InboxOf(st, r.receiver)
			cursor, err := in.Cursor(ctx)
			if err != nil {
				return err
			}
			h, err := in.HandOver(ctx)
			if err != nil {
				return err
			}
			seen = cursor >= ms.last.Offset
			d, now, err := r.due(ctx, st, ms.last, h)
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

// due returns the decision on messages that were refused, and the log's time.
func (r *runner) due(ctx context.Context, st *tally.Store, l projector.Letter, h projector.HandOver) (tavern.Decision, time.Time, error) {
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
func (r *runner) run(ctx context.Context, m tavern.Message) (ended, error) {
	out := r.app.Out
	if r.app.Format != cli.Text {
		out = r.app.Err // standard output has the JSON rows
	}
	c := child{command: r.command, stdin: stdinOf(m), stdout: out, stderr: r.app.Err, env: []variable{{"TALLY_INBOX", r.receiver},
		{"TALLY_MESSAGE", m.ID}, {"TALLY_FROM", m.From}, {"TALLY_TYPE", m.Type}, {"TALLY_THREAD", m.Thread}}}
	return c.run(ctx)
}

// stdinOf returns the standard input of a command: a text as it was written, else the message's JSON or bytes.
func stdinOf(m tavern.Message) []byte {
	if text, err := rawjson.String(m.Body); err == nil {
		return []byte(text)
	}
	if len(m.Body) > 0 {
		return m.Body
	}
	return m.Bytes
}

// refused records that a message was refused, and sends a notice to its sender after the last refusal.
func (r *runner) refused(ctx context.Context, l projector.Letter, row handedRow) error {
	err := r.store.do(ctx, func(st *tally.Store) error { return r.note(ctx, st, l, &row) })
	return errors.Join(err, r.say(row))
}

// note records a refusal.
func (r *runner) note(ctx context.Context, st *tally.Store, l projector.Letter, row *handedRow) error {
	h, err := tavern.InboxOf(st, r.receiver).Refused(ctx, l.Offset, row.Error)
	if cli.Is[*tavern.SeenError](err) {
		return nil // another process has marked it as read
	}
	if !r.store.isStored(err) {
		return err
	}
	d, _, err := r.due(ctx, st, l, h)
	if err == nil {
		_, err = d.Make(ctx, st)
	}
	row.Refusals, row.Next = h.Refusals, events.TimestampOf(d.Next)
	return err
}

// unstarted records that the command cannot be started for a message, which counts as a refusal. If final is set, or
// after too many refusals, the message is dead: its sender gets a notice, and the cursor moves past it.
func (r *runner) unstarted(ctx context.Context, l projector.Letter, row handedRow, final bool) error {
	row.Outcome, row.Exit = "refused", notExecutable
	err := r.store.do(ctx, func(st *tally.Store) error {
		if err := r.note(ctx, st, l, &row); !r.store.isStored(err) || !final && row.Refusals < tavern.MaxRefusals {
			return err
		}
		row.Outcome, row.Next = "dead", ""
		if err := r.tell(ctx, st, l); !r.store.isStored(err) {
			return err
		}
		return tavern.InboxOf(st, r.receiver).Seen(ctx, l.Offset)
	})
	return errors.Join(err, r.say(row))
}

// tell sends a notice about a dead message to its sender. If another message arrives in the sender's inbox meanwhile, it
// tries again.
func (r *runner) tell(ctx context.Context, st *tally.Store, l projector.Letter) error {
	for range maxTells {
		d, _, err := r.due(ctx, st, l, projector.HandOver{At: l.Offset, Refusals: tavern.MaxRefusals, Last: events.TimestampOf(l.Recorded)})
		if err != nil || len(d.Parts) == 0 {
			return err
		}
		if made, err := d.Make(ctx, st); made || !events.IsStored(err) {
			return err
		}
	}
	return nil // another process sent the notice, or the inbox is too busy
}

// maxTells is the number of attempts to send a notice.
const maxTells = 8

// say prints the result for a message. Text output has failures only.
func (r *runner) say(row handedRow) error {
	row.Inbox, row.ID = cli.ID(r.receiver), cli.ID(row.ID)
	if r.app.Format != cli.Text {
		return cli.WriteJSON(r.app.Out, cli.JSONL, row)
	}
	if row.Outcome == "dead" {
		_, err := fmt.Fprintln(r.app.Err, plain.Printable(fmt.Sprintf("message %s at %v is dead and skipped: %s", projector.Cut(row.ID, maxNamed), row.Offset, row.Error)))
		return err
	}
	if row.Outcome != "refused" {
		return nil
	}
	text := fmt.Sprintf("message %s at %v was refused: %s", row.ID, row.Offset, row.Error)
	if at, ok := row.Next.Time(); ok {
		text += fmt.Sprintf("; again at %s", at.UTC().Format("15:04:05"))
	}
	_, err := fmt.Fprintln(r.app.Err, plain.Printable(text))
	return err
}

// maxNamed is the maximum length of an id in a sentence, in bytes.
const maxNamed = 200

// lastWord returns a context for recording results after an interruption: it outlives ctx by inTime.
func lastWord(ctx context.Context) (context.Context, context.CancelFunc) {
	last, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(inTime, cancel) })
	return last, func() { stop(); cancel() }
}
