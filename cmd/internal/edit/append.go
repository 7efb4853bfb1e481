package edit

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/disk/lines"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// appendSource is the source of the events that append makes from turns.
const appendSource = "urn:tally:append"

// maxLine is the maximum length of a line: the data of an event, in base64 at worst, and its headers.
const maxLine = events.MaxValue/3*4 + 4 + events.MaxHeaders

// Bounds of the appends that wait for their acknowledgement: their number, and the bytes of their data.
const (
	inFlight      = 512
	inFlightBytes = 32 << 20
)

func newAppend(a *cmdutil.App) *cobra.Command {
	p := &appender{app: a}
	var expect string
	cmd := &cobra.Command{
		Use: "append [SESSION]", Short: "Append turns or events from standard input, one on each line", Args: cobra.MaximumNArgs(1),
		Long: `Append turns or events from standard input, one JSON object on each line.

A line with "specversion" is a CloudEvent. Its subject (session/<id> or
document/<kind>/<id>) may be left out if SESSION is given. With SESSION, any other
object is a turn and is stored byte for byte. An object with a repeated member name is
refused.

The identity of a turn is its own "id" or "uuid", else KEY:<line number> with --key KEY,
else a new id, which the acknowledgement shows. A repeated identity is stored once, so an
input with identities can be repeated after a failure. Lines with new ids cannot. A line
holds up to 64 MiB of data. Data above 8 MiB is stored once, by its content.

An acknowledgement is printed when the event is on disk. With --buffered it is printed when
the event survives the end of the process: this is faster, and a power cut loses up to about
a second of events. If a tree in mode sync cannot show the event in its files, the exit code
is 3. An invalid line is reported on standard error, the others are stored, and the exit code
is 3.`,
		Example: cmdutil.Examples(`echo '{"role":"user","content":"hi"}' | tally append chat-1`,
			"tally append chat-1 --key today -o jsonl < turns.jsonl", "tally append -o jsonl < cloudevents.jsonl"),
		RunE: func(cmd *cobra.Command, args []string) error {
			cmdutil.CollectLess()
			if expect != "" {
				at, err := events.ParseOffset(expect)
				if err != nil {
					return err
				}
				p.expect = &at
			}
			if len(args) == 1 {
				p.session = args[0]
				if err := events.Session("", p.session).Validate(); err != nil {
					return err
				}
				if p.session == cmdutil.Last {
					return cli.Usagef("%q means the latest active session, so no session can have that id: choose another", cmdutil.Last)
				}
			}
			if p.session == "" && p.expect != nil {
				return cli.Usagef("--expect needs a SESSION")
			}
			return p.run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&p.thread, "thread", events.MainThread, "thread of the turns")
	cmd.Flags().StringVar(&p.key, "key", "", "a turn without an id gets the id KEY:<line number>")
	cmd.Flags().StringVar(&expect, "expect", "", "last offset of the session that you know, @0 for a new one: if another writer was faster, nothing is stored")
	cmd.Flags().BoolVar(&p.buffered, "buffered", false, "do not wait for the disk: a power cut may lose the events of the last second")
	return cmd
}

// appender reads lines and appends their events, many at a time. The events of one subject keep the order of the lines.
type appender struct {
	app                  *cmdutil.App
	session, thread, key string
	expect               *events.Offset
	buffered             bool

	st      *tally.Store
	sub     events.Subject // session of the argument
	waiting []waiting      // appends without an acknowledgement, in the order of the lines
	held    int            // bytes of their data
	bad     int            // number of lines that were not stored
	acked   int
	stopped error // the store is gone: no later line can be stored
	unshown error // first error of a tree that does not show a stored event

	moves map[events.Subject]map[events.Offset]bool // acknowledged events that may be rejected
	blobs map[string]bool                           // whether data by reference may be rejected, by type and reference
}

// waiting is an append whose acknowledgement is not printed yet.
type waiting struct {
	line       int
	event      events.Event
	rejectable bool // the event may be rejected
	pending    *tally.Pending
}

func (p *appender) run(ctx context.Context) (err error) {
	if err := p.open(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.st.Close()) }()
	if p.session != "" {
		p.sub = events.Session(p.st.Namespace(), p.session)
	}
	// Appends that were sent are waited for, also after an interruption.
	sending := context.WithoutCancel(ctx)
	reading, stop := context.WithCancel(ctx)
	defer stop()
	for in := p.lines(reading); in != nil && p.stopped == nil; {
		select {
		case l, more := <-in:
			if !more {
				in = nil
				break
			}
			if err := p.line(sending, l); err != nil {
				return err
			}
		case <-ctx.Done():
			in = nil
		case <-p.first(): // an acknowledgement is printed without waiting for the next line
			if err := p.drain(sending, len(p.waiting)-1); err != nil {
				return err
			}
		}
	}
	if err := p.drain(sending, 0); err != nil {
		return err
	}
	return p.end(ctx)
}

// input is a line, or the error of reading it.
type input struct {
	n    int
	text []byte
	err  error
}

// lines reads standard input until its end, or until ctx is done.
func (p *appender) lines(ctx context.Context) <-chan input {
	out := make(chan input)
	go func() {
		defer close(out)
		in := lines.NewReader(p.app.In, maxLine)
		for {
			text, err := in.Next()
			if errors.Is(err, lines.ErrEnd) {
				return
			}
			select {
			case out <- input{in.Line(), text, err}:
			case <-ctx.Done():
				return
			}
			if _, tooLong := errors.AsType[*lines.TooLongError](err); err != nil && !tooLong {
				return
			}
		}
	}()
	return out
}

// line appends the event of a line, or reports the line as invalid.
func (p *appender) line(ctx context.Context, l input) error {
	switch tooLong, ok := errors.AsType[*lines.TooLongError](l.err); {
	case ok:
		p.refuse(l.n, tooLong)
		return nil
	case l.err != nil:
		return errors.Join(fmt.Errorf("standard input, line %d: %w", l.n, l.err), p.drain(ctx, 0))
	case len(strings.TrimSpace(string(l.text))) == 0:
		return nil
	}
	return p.take(ctx, l.n, l.text)
}

// first returns a channel that is closed when the oldest append has ended, nil if no append is waiting.
func (p *appender) first() <-chan struct{} {
	if len(p.waiting) == 0 {
		return nil
	}
	return p.waiting[0].pending.Done()
}

// canBeRejected reports whether the session may reject the event. It reads data by reference once, however many lines
// name them.
func (p *appender) canBeRejected(ctx context.Context, e events.Event) bool {
	ref := e.Extensions[events.ExtDataRef]
	if ref == "" || len(e.Data) > 0 {
		return projector.CanBeRejected(e)
	}
	rejectable, known := p.blobs[e.Type+" "+ref]
	if known {
		return rejectable
	}
	rec, err := projector.Resolve(ctx, p.st.Log, events.Record{Event: e}, p.st.MaxValue())
	if err == nil { // unreadable data are damaged, not rejected
		rejectable = projector.CanBeRejected(rec.Event) || projector.Decode(rec).Invalid != nil
	}
	if p.blobs == nil {
		p.blobs = make(map[string]bool)
	}
	p.blobs[e.Type+" "+ref] = rejectable
	return rejectable
}

// nameRejected prints the appended events that were rejected.
func (p *appender) nameRejected(ctx context.Context) error {
	for sub, moves := range p.moves {
		s, err := p.st.Loader().Outline(ctx, sub, 0)
		err = projector.Tolerate(err)
		if err != nil {
			return err
		}
		for _, v := range s.Ledger().Rejected {
			if moves[v.Offset] {
				fmt.Fprintf(p.app.Err, "%s at %v is rejected: %s. It is stored, and has no effect.\n", v.Type, v.Offset, plain.Printable(v.Reason))
			}
		}
	}
	return nil
}

// end prints the summary and returns the error of the command.
func (p *appender) end(ctx context.Context) error {
	if p.stopped == nil {
		if err := p.nameRejected(ctx); err != nil {
			return err
		}
	}
	if p.app.Format == cli.Text {
		promise := p.st.Log.Durability()
		if p.buffered {
			promise = log.Buffered
		}
		p.app.Say("%s appended, each %s.", plain.Count(p.acked, "event"), promise)
	}
	switch {
	case p.stopped != nil:
		return p.stopped
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case p.bad > 0:
		return &cli.CodeError{Code: cli.Partial, Err: errors.Join(fmt.Errorf("%s could not be stored", plain.Count(p.bad, "line")), p.unshown)}
	}
	return p.unshown
}

// take appends the event of one line, after waiting for room.
func (p *appender) take(ctx context.Context, n int, line []byte) error {
	e, err := p.event(n, line)
	if err == nil {
		if e = p.st.Stamp(e); p.expect != nil || len(e.Data) > p.st.Log.MaxData() {
			err = e.Validate() // of other events, the append does it
		}
	}
	if err != nil {
		p.refuse(n, err)
		return nil
	}
	rejectable := p.canBeRejected(ctx, e)
	if e, err = p.st.ByReference(ctx, e); err != nil {
		p.refuse(n, err)
		if isLost(err) {
			p.stopped = err
		}
		return nil
	}
	if p.expect != nil {
		return p.chain(ctx, n, e, rejectable)
	}
	if err := p.drain(ctx, inFlight-1); err != nil {
		return err
	}
	for len(p.waiting) > 0 && p.held+len(e.Data) > inFlightBytes {
		if err := p.drain(ctx, len(p.waiting)-1); err != nil {
			return err
		}
	}
	p.waiting = append(p.waiting, waiting{n, e, rejectable, p.async(ctx, e)})
	p.held += len(e.Data)
	return nil
}

func (p *appender) append(ctx context.Context, expect log.Expect, e events.Event) (log.Ack, error) {
	if p.buffered {
		return p.st.Log.AppendBuffered(ctx, e.Subject, expect, e)
	}
	return p.st.Log.Append(ctx, e.Subject, expect, e)
}

func (p *appender) async(ctx context.Context, e events.Event) *tally.Pending {
	if p.buffered {
		return p.st.Log.AppendAsyncBuffered(ctx, e.Subject, log.Any, e)
	}
	return p.st.Log.AppendAsync(ctx, e.Subject, log.Any, e)
}

func (p *appender) open(ctx context.Context) error {
	st, err := p.app.Open(ctx)
	if err == nil {
		p.st = st
	}
	return err
}

// isLost reports whether the store accepts no more appends. A quota limits some documents only.
func isLost(err error) bool {
	_, limited := errors.AsType[*log.QuotaError](err)
	return cli.ExitCode(err) == cli.Unreachable && !limited
}

// again repeats the append of an event without an acknowledgement. The identity is the same, so the event is stored
// once. If the owner of the store is gone, again reopens the store, which has another owner then or is owned by this
// process. It does so for every owner that dies.
func (p *appender) again(ctx context.Context, e events.Event) (log.Ack, error) {
	for giveUp := time.Now().Add(patience); ; {
		ack, err := p.append(ctx, log.Any, e)
		if errors.Is(err, log.ErrAborted) && time.Now().Before(giveUp) {
			continue // an earlier append of the same subject has failed too
		}
		if events.IsStored(err) || !isLost(err) || errors.Is(err, log.ErrFull) || time.Now().After(giveUp) {
			return ack, err
		}
		_ = p.st.Close() // the store is lost already; opening it again reports the reason
		for p.open(ctx) != nil && time.Now().Before(giveUp) {
			time.Sleep(100 * time.Millisecond)
		}
	}
}

// patience is the time limit for reopening a store that no process serves.
const patience = 30 * time.Second

// chain appends one event after the previous one, and waits for it.
func (p *appender) chain(ctx context.Context, n int, e events.Event, rejectable bool) error {
	ack, err := p.append(ctx, log.At(*p.expect), e)
	if !p.isStored(err) {
		p.stopped = err // later lines would have no predecessor
		p.refuse(n, err)
		return nil
	}
	*p.expect = ack.Last
	return p.print(ctx, e, rejectable, ack)
}

// isStored reports whether an append is in the log. It keeps the first error of a tree.
func (p *appender) isStored(err error) bool {
	stored := events.IsStored(err)
	if stored && p.unshown == nil {
		p.unshown = err
	}
	return stored
}

// drain prints acknowledgements in the order of the lines until at most limit are waiting.
func (p *appender) drain(ctx context.Context, limit int) error {
	for len(p.waiting) > limit {
		w := p.waiting[0]
		p.waiting, p.held = p.waiting[1:], p.held-len(w.event.Data)
		ack, err := w.pending.Wait(ctx)
		if cmdutil.IsAway(err) || errors.Is(err, log.ErrAborted) && !events.IsStored(err) {
			// Later appends of the subject fail too. They are repeated in the order of the lines before any other
			// append.
			limit = 0
			if p.stopped == nil {
				ack, err = p.again(ctx, w.event)
			}
		}
		if !p.isStored(err) {
			p.refuse(w.line, err)
			if isLost(err) {
				p.stopped = err
			}
			continue
		}
		if err := p.print(ctx, w.event, w.rejectable, ack); err != nil {
			return err
		}
	}
	return nil
}

// acked is the acknowledgement of one event.
type acked struct {
	ID         string        `json:"id"`
	Offset     events.Offset `json:"offset"`
	Durability string        `json:"durability"`
	Duplicate  bool          `json:"duplicate"`
	Stale      bool          `json:"stale,omitempty"` // not in effect: it follows turns that were rewound
}

func (p *appender) print(ctx context.Context, e events.Event, rejectable bool, ack log.Ack) error {
	p.acked++
	ack, err := p.st.Judge(ctx, e.Subject, ack, e)
	if err != nil {
		return err
	}
	if ack.Stale {
		fmt.Fprintf(p.app.Err, "%s at %v is stale: it follows turns that were rewound. It is stored, and not in effect.\n", plain.Printable(e.ID), ack.First)
	}
	if rejectable {
		if p.moves == nil {
			p.moves = make(map[events.Subject]map[events.Offset]bool)
		}
		if p.moves[e.Subject] == nil {
			p.moves[e.Subject] = make(map[events.Offset]bool)
		}
		p.moves[e.Subject][ack.First] = true
	}
	if p.app.Format == cli.Text {
		return nil
	}
	return cli.WriteJSON(p.app.Out, cli.JSONL, acked{e.ID, ack.First, ack.Durability.String(), ack.Duplicate, ack.Stale})
}

func (p *appender) refuse(line int, err error) {
	p.bad++
	text := err.Error()
	if e, ok := errors.AsType[*events.InvalidError](err); ok && e.Field == "expect" {
		text = e.Reason + ": set it with --expect"
	}
	fmt.Fprintf(p.app.Err, "line %d: %s%s\n", line, plain.Printable(text), hintFor(err))
}

// hintFor explains how to write an amount: as a text, since a number is a binary fraction in most languages.
func hintFor(err error) string {
	if e, ok := errors.AsType[*events.InvalidError](err); ok && e.Field == "data.usd" && strings.HasSuffix(e.Reason, "have a number") {
		return `; write it as a text, such as "0.5"`
	}
	return ""
}

// event returns the event of a line.
func (p *appender) event(n int, line []byte) (events.Event, error) {
	members, err := rawjson.Object(line)
	if err != nil {
		return events.Event{}, err
	}
	if _, ok := members.Get("specversion"); ok {
		e, err := events.ParseJSON(p.st.Namespace(), line)
		if _, said := members.Get("time"); err == nil && said && e.Time.IsZero() {
			err = &events.InvalidError{Field: "time", Reason: "the zero time cannot be told from none"}
		}
		if err == nil && e.Subject == (events.Subject{}) {
			if e.Subject = p.sub; p.session == "" {
				err = &events.InvalidError{Field: "subject", Reason: "missing, and no SESSION was given"}
			}
		}
		if err == nil && p.session != "" && e.Subject != p.sub {
			err = &events.InvalidError{Field: "subject", Reason: fmt.Sprintf("%s, but this appends to %s", e.Subject.Name(), p.sub.Name())}
		}
		return e, err
	}
	if p.session == "" {
		return events.Event{}, errors.New("not a CloudEvent (specversion is missing), and there is no SESSION argument")
	}
	return p.turn(n, line, members)
}

// turn returns a turn.appended event with an object.
func (p *appender) turn(n int, line []byte, members rawjson.Members) (events.Event, error) {
	id, err := ownID(members)
	if err != nil {
		return events.Event{}, err
	}
	entry := events.Entry{Thread: p.thread, Turn: rawjson.Trim(line), ID: id}
	if raw, ok := members.Get("timestamp"); ok {
		if text, err := rawjson.String(raw); err == nil {
			if _, ok := events.Timestamp(text).Time(); ok {
				entry.Timestamp = events.Timestamp(text)
			}
		}
	}
	e, err := events.New(appendSource, p.sub, &events.TurnAppended{Entries: []events.Entry{entry}})
	if err != nil {
		return events.Event{}, err
	}
	if at, ok := entry.Timestamp.Time(); ok {
		e.Time = at
	}
	if e.ID = id; id == "" && p.key != "" {
		e.ID = p.key + ":" + strconv.Itoa(n)
	}
	return e, nil
}

// ownID returns the id or uuid of an object, "" if it has neither.
func ownID(members rawjson.Members) (string, error) {
	for _, name := range []string{"id", "uuid"} {
		raw, ok := members.Get(name)
		if !ok || string(raw) == "null" {
			continue
		}
		id, err := rawjson.String(raw)
		if err != nil { // a number is an id as it is written
			id = string(rawjson.AppendCompact(nil, raw))
		}
		if id == "" {
			return "", &events.InvalidError{Field: name, Reason: "empty"}
		}
		return id, nil
	}
	return "", nil
}
