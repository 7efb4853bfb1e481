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

// appendSource is the source of events that append makes of bare objects.
const appendSource = "urn:tally:append"

// maxLine bounds a line: the data of an event, in base64 at worst, and the rest of it.
const maxLine = events.MaxValue/3*4 + 4 + events.MaxHeaders

// These bound the appends that wait for their acknowledgement, and what they hold.
const (
	inFlight      = 512
	inFlightBytes = 32 << 20
)

func newAppend(a *cmdutil.App) *cobra.Command {
	p := &appender{app: a}
	var expect string
	cmd := &cobra.Command{
		Use: "append [SESSION]", Short: "Append events from standard input, one JSON object a line", Args: cobra.MaximumNArgs(1),
		Long: `Append events from standard input, one JSON object a line.

A line with "specversion" is a CloudEvent; its subject (session/<id> or
document/<kind>/<id>) may be left out if SESSION is given. With SESSION, any
other object is a turn and is kept byte for byte; one that has a name twice is
refused, since nobody could say which is meant. Its identity is its own "id" or
"uuid"; else K:<line> with --key K; else a fresh id that the acknowledgement
shows. An identity that was appended before is stored once, so repeating an input
after a failure is safe - but not for lines with fresh ids. A line holds up to 64
MiB of data; what is above 8 MiB is stored once by its content, and named.

An acknowledgement is printed only when the event is on disk; with --buffered,
when it survives the process, which is faster and loses up to about a second of
events in a power cut. It is also printed only when the files of trees in mode sync
show the event; if they do not, the exit code is 3. A bad line is named
on stderr, the others go in, and the exit code is 3.`,
		Example: cmdutil.Examples(`echo '{"role":"user","content":"hi"}' | tally append chat-1`,
			"tally append chat-1 --key today -o jsonl < turns.jsonl", "tally append -o jsonl < cloudevents.jsonl"),
		RunE: func(cmd *cobra.Command, args []string) error {
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
					return cli.Usagef("%q stands for the session last active, so no session can have that id: give it another", cmdutil.Last)
				}
			}
			if p.session == "" && p.expect != nil {
				return cli.Usagef("--expect needs a SESSION")
			}
			return p.run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&p.thread, "thread", events.MainThread, "thread that bare objects go to")
	cmd.Flags().StringVar(&p.key, "key", "", "bare objects without an id get the id KEY:<line number>")
	cmd.Flags().StringVar(&expect, "expect", "", "the session's last offset as you know it, @0 for a new one; each line then expects to follow the one before")
	cmd.Flags().BoolVar(&p.buffered, "buffered", false, "do not wait for the disk: a power cut may take what was acknowledged in the last second")
	return cmd
}

// appender reads lines and appends their events, many at a time; those of one
// subject in the order of the lines.
type appender struct {
	app                  *cmdutil.App
	session, thread, key string
	expect               *events.Offset
	buffered             bool

	st      *tally.Store
	sub     events.Subject // of SESSION
	waiting []waiting      // in the order of the lines
	held    int            // bytes of their data
	bad     int            // lines that did not go in
	acked   int
	stopped error // the store is gone: no line after this can go in
	unshown error // files of a tree do not show all of what is stored

	moves map[events.Subject]map[events.Offset]bool // acknowledged events that may be void at their place
	blobs map[string]bool                           // whether data of a type, by reference, may be void
}

// waiting is an append whose acknowledgement is not printed yet.
type waiting struct {
	line    int
	event   events.Event
	void    bool // it may be void at its place
	pending *tally.Pending
}

func (p *appender) run(ctx context.Context) (err error) {
	if err := p.open(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.st.Close()) }()
	if p.session != "" {
		p.sub = events.Session(p.st.Namespace(), p.session)
	}
	// What was sent is waited for, also when the reading is interrupted.
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
		case <-p.first(): // an acknowledgement does not wait for the next line
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

// input is a line, or why there is none.
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

// line takes a line, or says why not.
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

// first is closed when the append that was sent first is over; nil: none is under way.
func (p *appender) first() <-chan struct{} {
	if len(p.waiting) == 0 {
		return nil
	}
	return p.waiting[0].pending.Done()
}

// canBeVoid reports whether an event may be void at its place. Data by reference are looked at
// once, however many lines name them.
func (p *appender) canBeVoid(ctx context.Context, e events.Event) bool {
	ref := e.Extensions[events.ExtDataRef]
	if ref == "" || len(e.Data) > 0 {
		return projector.CanBeRejected(e)
	}
	void, known := p.blobs[e.Type+" "+ref]
	if known {
		return void
	}
	rec, err := projector.Resolve(ctx, p.st.Log, events.Record{Event: e}, p.st.MaxValue())
	if err == nil { // what cannot be read is damaged, not void
		void = projector.CanBeRejected(rec.Event) || projector.Decode(rec).Invalid != nil
	}
	if p.blobs == nil {
		p.blobs = make(map[string]bool)
	}
	p.blobs[e.Type+" "+ref] = void
	return void
}

// nameVoid names what was appended and has no effect at its place.
func (p *appender) nameVoid(ctx context.Context) error {
	for sub, moves := range p.moves {
		s, err := p.st.Loader().Outline(ctx, sub, 0)
		err = projector.Tolerate(err)
		if err != nil {
			return err
		}
		for _, v := range s.Ledger().Rejected {
			if moves[v.Offset] {
				fmt.Fprintf(p.app.Err, "%s at %v is void: %s. It is kept, and has no effect.\n", v.Type, v.Offset, plain.Printable(v.Reason))
			}
		}
	}
	return nil
}

// end says what the command comes to.
func (p *appender) end(ctx context.Context) error {
	if p.stopped == nil {
		if err := p.nameVoid(ctx); err != nil {
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
		return &cli.CodeError{Code: cli.Partial, Err: errors.Join(fmt.Errorf("%s did not go in", plain.Count(p.bad, "line")), p.unshown)}
	}
	return p.unshown
}

// take appends the event of one line, once there is room.
func (p *appender) take(ctx context.Context, n int, line []byte) error {
	e, err := p.event(n, line)
	if err == nil {
		e = p.st.Stamp(e)
		err = e.Validate()
	}
	if err != nil {
		p.refuse(n, err)
		return nil
	}
	void := p.canBeVoid(ctx, e)
	if e, err = p.st.ByReference(ctx, e); err != nil {
		p.refuse(n, err)
		if isLost(err) {
			p.stopped = err
		}
		return nil
	}
	if p.expect != nil {
		return p.chain(ctx, n, e, void)
	}
	if err := p.drain(ctx, inFlight-1); err != nil {
		return err
	}
	for len(p.waiting) > 0 && p.held+len(e.Data) > inFlightBytes {
		if err := p.drain(ctx, len(p.waiting)-1); err != nil {
			return err
		}
	}
	p.waiting = append(p.waiting, waiting{n, e, void, p.async(ctx, e)})
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

// isLost reports whether an error says that the store takes nothing more: a limit is only of
// some documents.
func isLost(err error) bool {
	_, limited := errors.AsType[*log.QuotaError](err)
	return cli.ExitCode(err) == cli.Unreachable && !limited
}

// again appends an event anew that got no acknowledgement. Its identity is the
// same, so it is stored once. If the process that owned the store is gone, the store
// is opened again: another one owns it by now, or this one does. Owners may die one
// after the other.
func (p *appender) again(ctx context.Context, e events.Event) (log.Ack, error) {
	for giveUp := time.Now().Add(patience); ; {
		ack, err := p.append(ctx, log.Any, e)
		if errors.Is(err, log.ErrAborted) && time.Now().Before(giveUp) {
			continue // it stood behind one of those that were sent before, which failed too
		}
		if events.IsStored(err) || !isLost(err) || errors.Is(err, log.ErrFull) || time.Now().After(giveUp) {
			return ack, err
		}
		_ = p.st.Close() // it is lost already; the next one says what is wrong, if anything is
		for p.open(ctx) != nil && time.Now().Before(giveUp) {
			time.Sleep(100 * time.Millisecond)
		}
	}
}

// patience is how long a store is looked for that no process serves.
const patience = 30 * time.Second

// chain appends one event behind the one before, and waits.
func (p *appender) chain(ctx context.Context, n int, e events.Event, void bool) error {
	ack, err := p.append(ctx, log.At(*p.expect), e)
	if !p.isStored(err) {
		p.stopped = err // what follows would follow nothing
		p.refuse(n, err)
		return nil
	}
	*p.expect = ack.Last
	return p.print(ctx, e, void, ack)
}

// isStored reports whether an append is in the log. It keeps the first error of a tree.
func (p *appender) isStored(err error) bool {
	stored := events.IsStored(err)
	if stored && p.unshown == nil {
		p.unshown = err
	}
	return stored
}

// drain prints acknowledgements in the order of the lines until at most so many
// are waiting.
func (p *appender) drain(ctx context.Context, most int) error {
	for len(p.waiting) > most {
		w := p.waiting[0]
		p.waiting, p.held = p.waiting[1:], p.held-len(w.event.Data)
		ack, err := w.pending.Wait(ctx)
		if !events.IsStored(err) && (errors.Is(err, log.ErrAborted) || errors.Is(err, log.ErrUnknown) || errors.Is(err, log.ErrUnavailable)) {
			// What was sent behind it fails too, and is appended anew before anything else
			// is: the order is that of the lines.
			most = 0
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
		if err := p.print(ctx, w.event, w.void, ack); err != nil {
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
	Late       bool          `json:"late,omitempty"` // not in effect: what its producer had seen was rewound
}

func (p *appender) print(ctx context.Context, e events.Event, void bool, ack log.Ack) error {
	p.acked++
	ack, err := p.st.Judge(ctx, e.Subject, ack, e)
	if err != nil {
		return err
	}
	if ack.Stale {
		fmt.Fprintf(p.app.Err, "%s at %v is late: what its producer had seen was rewound. It is kept, and not in effect.\n", plain.Printable(e.ID), ack.First)
	}
	if void {
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
		text = e.Reason + ": give it with --expect"
	}
	fmt.Fprintf(p.app.Err, "line %d: %s%s\n", line, plain.Printable(text), hintFor(err))
}

// hintFor says how to write what is often written otherwise: an amount as a number, which
// in most languages is a binary one that is not the amount.
func hintFor(err error) string {
	if e, ok := errors.AsType[*events.InvalidError](err); ok && e.Field == "data.usd" && strings.HasSuffix(e.Reason, "have a number") {
		return `; write it as a text, such as "0.5"`
	}
	return ""
}

// event makes the event of a line.
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
		return events.Event{}, errors.New("no CloudEvent (specversion is missing), and no SESSION was given")
	}
	return p.turn(n, line, members)
}

// turn makes a turn.appended of a bare object.
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

// ownID is the object's own id or uuid, "" if it has none.
func ownID(members rawjson.Members) (string, error) {
	for _, name := range []string{"id", "uuid"} {
		raw, ok := members.Get(name)
		if !ok || string(raw) == "null" {
			continue
		}
		id, err := rawjson.String(raw)
		if err != nil { // a number is a fine id in its own spelling
			id = string(rawjson.AppendCompact(nil, raw))
		}
		if id == "" {
			return "", &events.InvalidError{Field: name, Reason: "empty"}
		}
		return id, nil
	}
	return "", nil
}
