package evals

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/filename"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// Conversation is a handle on a recorded conversation: its steps, the simulation
// that produced them, and the runs that judged them. It is cheap, does no I/O until
// a method is called, and is safe for concurrent use.
//
// A conversation is a session of kind conversation. Its steps are the turns of
// thread main, each as it stands on its line of conversation.jsonl. On a session
// of another kind, methods return a *tally.KindError.
type Conversation struct {
	s *tally.Session

	mu   sync.Mutex
	tail *tail // what Append knows, nil: nothing yet
}

// Of returns a handle on a conversation, whether it exists or not.
func Of(st *tally.Store, id string) *Conversation {
	return &Conversation{s: st.Session(id)}
}

// ID is the conversation's id.
func (c *Conversation) ID() string { return c.s.ID() }

// Path is the folder of the conversation below the base of the layout .tally: where
// an export puts it, unless it was imported from a folder of another name. It never
// leaves the base, whatever the id.
func (c *Conversation) Path() string { return "conversations/" + filename.Of(c.ID()) }

// Session is the session that the conversation is: rewind, undo, redo and fork are
// its methods. After a move through it, the handle appends to what is then in effect.
func (c *Conversation) Session() *tally.Session {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tail = nil
	return c.s
}

// head loads the session, empty if it does not exist.
func (c *Conversation) head(ctx context.Context) (*projector.Session, error) {
	s, err := c.s.Store().Loader().Session(ctx, c.s.Subject(), 0)
	if errors.Is(err, tally.ErrNotFound) {
		return projector.NewSession(c.s.Subject()), nil
	}
	if err != nil {
		return nil, err
	}
	return s, tally.CheckKind(s, events.KindConversation)
}

// Exists reports whether anything was ever recorded of the conversation.
func (c *Conversation) Exists(ctx context.Context) (bool, error) {
	kind, err := kindOf(ctx, c.s.Store(), c.s.Subject())
	return kind == events.KindConversation, err
}

// CreatedAt is when the conversation was created, or began if nobody said so.
func (c *Conversation) CreatedAt(ctx context.Context) (events.Timestamp, error) {
	s, err := c.loaded(ctx, "")
	if err != nil {
		return "", err
	}
	if s.Ledger.CreatedAt != "" {
		return s.Ledger.CreatedAt, nil
	}
	rec, err := c.s.Store().Log.Record(ctx, s.History.First())
	if err != nil {
		return "", err
	}
	if rec.Time.IsZero() {
		rec.Time = rec.Recorded
	}
	return events.TimestampOf(rec.Time), nil
}

// loaded returns the session at a position; that it does not exist is ErrNotFound.
func (c *Conversation) loaded(ctx context.Context, position string) (*projector.Session, error) {
	s, err := c.s.Load(ctx, position)
	if err != nil {
		return nil, err
	}
	return s, tally.CheckKind(s, events.KindConversation)
}

// Load returns the conversation as it is now. One that does not exist is
// ErrNotFound, one whose steps were never saved ErrNoSteps; one that was saved
// without steps has none.
func (c *Conversation) Load(ctx context.Context) (*Data, error) {
	return c.LoadAt(ctx, "")
}

// LoadAt returns the conversation as it was at a position, such as @1234, #12 or a
// time: an earlier content stays readable for ever.
func (c *Conversation) LoadAt(ctx context.Context, position string) (*Data, error) {
	s, err := c.loaded(ctx, position)
	if err != nil {
		return nil, err
	}
	d, err := decodeThread(s)
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", c.s.Subject(), err)
	}
	if position == "" {
		c.see(s.Offset(), d.filled, d.c.ID)
	}
	return d.c, nil
}

// decodeThread reads the steps of a session. Its threads are not altered.
func decodeThread(s *projector.Session) (*decoding, error) {
	th := s.Threads[events.MainThread]
	if th == nil {
		return nil, ErrNoSteps
	}
	d := &decoding{c: &Data{ID: s.Subject.ID, Revision: s.Offset()}}
	if meta, err := rawjson.Object(th.Meta); err == nil { // what stands on no line, as there is none
		d.head(meta)
	}
	d.c.Steps = make([]Step, 0, len(th.Turns))
	for i := range th.Turns {
		if raw := th.Turns[i].Raw; raw != nil {
			d.add(i+1, raw)
			continue
		}
		d.filled++
		d.c.Warnings = append(d.c.Warnings, Warning{i + 1, "bytes that are not JSON, left out"})
	}
	return d, nil
}

// Metadata returns the conversation's free object, nil if it has none.
func (c *Conversation) Metadata(ctx context.Context) (events.Raw, error) {
	d, err := c.Load(ctx)
	if errors.Is(err, ErrNoSteps) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return d.Metadata, nil
}

// SetMetadata changes the conversation's free object, nil takes it away. A
// conversation whose steps were never saved has none afterwards.
func (c *Conversation) SetMetadata(ctx context.Context, metadata events.Raw) (Saved, error) {
	if err := checkMetadata(metadata); err != nil {
		return Saved{}, err
	}
	var saved Saved
	err := tally.Retry(ctx, func() error {
		s, err := c.head(ctx)
		if err != nil {
			return err
		}
		data := &Data{ID: c.ID()}
		if d, err := decodeThread(s); err == nil {
			data = d.c
		}
		data.Metadata = metadata
		saved, err = c.saveOn(ctx, s, s.Offset(), data)
		return err
	}, log.ErrConflict)
	return saved, err
}

// tail is what Append knows of the end of the thread: at an offset it has a first
// line, and that one says the id.
type tail struct {
	seen events.Offset
	id   string
}

// see notes what the user of the handle has seen: what he appends comes after that.
func (c *Conversation) see(at events.Offset, lines int, id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case lines == 0:
		c.tail = nil
	case c.tail == nil || at > c.tail.seen:
		c.tail = &tail{at, id}
	}
}

// Append appends steps, as one event: when it returns they are stored and survive
// a crash of the program. Only the first call of a handle loads the conversation;
// later ones cost what they append.
//
// Somebody else may append, too. If somebody rewound the conversation below what
// this handle has seen (by Load, Save or Append), the steps are late: kept, but not in effect, and the ack
// says so. What is not a step is *events.InvalidError, and nothing is written.
//
// After log.ErrUnknown it is not known whether the steps are there: Load says.
func (c *Conversation) Append(ctx context.Context, steps ...Step) (log.Ack, error) {
	if len(steps) == 0 {
		return log.Ack{}, &events.InvalidError{Field: "steps", Reason: "nothing to append"}
	}
	if err := (&Data{ID: c.ID(), Steps: steps}).validate(); err != nil {
		return log.Ack{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock() // steps of one handle are stored in the order of the calls
	if c.tail == nil {
		return c.appendFirst(ctx, steps)
	}
	return c.appendNext(ctx, steps)
}

// appendFirst looks at the conversation before it appends. The first line of all
// says the metadata that a conversation without lines has.
func (c *Conversation) appendFirst(ctx context.Context, steps []Step) (log.Ack, error) {
	var ack log.Ack
	err := tally.Retry(ctx, func() error {
		s, err := c.head(ctx)
		if err != nil {
			return err
		}
		d, err := decodeThread(s)
		if errors.Is(err, ErrNoSteps) {
			d = &decoding{c: &Data{ID: c.ID()}}
		}
		e, err := c.appended(d.c, d.filled, steps)
		if err != nil {
			return err
		}
		ack, err = c.s.Store().Append(ctx, c.s.Subject(), sinceMoves(s.Offset()), e)
		if err == nil {
			c.tail = &tail{ack.Last, d.c.ID}
		}
		return err
	}, log.ErrConflict)
	return ack, err
}

// appendNext appends behind what the handle has seen. Whether that was rewound
// meanwhile costs a look at what came since, not a load.
func (c *Conversation) appendNext(ctx context.Context, steps []Step) (log.Ack, error) {
	e, err := c.appended(&Data{ID: c.tail.id}, 1, steps)
	if err != nil {
		return log.Ack{}, err
	}
	e = c.s.Store().Stamp(e)
	ack, err := c.s.Store().Append(ctx, c.s.Subject(), log.Since(c.tail.seen, events.TypeSessionRewound), e)
	if errors.Is(err, log.ErrConflict) {
		seen := fmt.Sprintf("%020d", uint64(c.tail.seen))
		ack, err = c.s.Store().Append(ctx, c.s.Subject(), log.Any, e.WithExtension(events.ExtSeen, seen))
		c.tail = nil // look again
		return ack, err
	}
	if err == nil {
		c.tail.seen = ack.Last
	}
	return ack, err
}

// appended returns the event that appends steps behind a number of lines.
func (c *Conversation) appended(d *Data, lines int, steps []Step) (events.Event, error) {
	p := &events.TurnAppended{}
	for i, s := range steps {
		raw, err := encodeStep(s, lines+i, d.ID, d.Metadata)
		if err != nil {
			return events.Event{}, inside("steps["+strconv.Itoa(i)+"]", rawError("", err))
		}
		p.Entries = append(p.Entries, stepEntry(s, raw))
	}
	return events.New(c.s.Store().Source(), c.s.Subject(), p)
}

// stepEntry returns a step as an entry of main, with the id and the time that it says
// itself.
func stepEntry(s Step, raw events.Raw) events.Entry {
	e := events.Entry{Thread: events.MainThread, Turn: raw}
	if id := s.ID(); len(id) <= events.MaxIDLen {
		e.ID = id
	}
	if at := events.Timestamp(textOf(s.fields, fieldTimestamp)); at != "" {
		if _, ok := at.Time(); ok {
			e.Timestamp = at
		}
	}
	return e
}

// sinceMoves expects that nothing moved the threads since an offset; 0: that there
// is nothing at all.
func sinceMoves(seen events.Offset) log.Expect {
	if seen == 0 {
		return log.At(0)
	}
	return log.Since(seen, projector.MoveTypes()...)
}
