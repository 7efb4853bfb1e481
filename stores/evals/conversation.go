package evals

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/disk/filename"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/evals/internal/steps"
)

// Conversation is a handle on a recorded conversation: its steps, the simulation that produced them, and the runs
// that judged them. It is cheap, does no I/O until a method is called, and is safe for concurrent use.
//
// A conversation is a session of kind conversation. Its steps are the turns of thread main, with the bytes of their
// lines in conversation.jsonl. If the session has another kind, methods return a *tally.KindError.
type Conversation struct {
	s *tally.Session

	mu sync.Mutex // held while steps are appended
	id string     // the id on the first line, as far as Append knows it; "": it has to load
}

// Of returns a handle on a conversation, which need not exist.
func Of(st *tally.Store, id string) *Conversation {
	return &Conversation{s: st.Session(id)}
}

// ID returns the conversation's id.
func (c *Conversation) ID() string { return c.s.ID() }

// Path returns the folder of the conversation below the base of the layout .tally. An export writes there, unless the
// conversation was imported from a folder with another name. For any id, the path is inside the base.
func (c *Conversation) Path() string { return "conversations/" + filename.Of(c.ID()) }

// Session returns the conversation's session, for rewind, undo, redo and fork. After such a move, the handle appends
// to the new state.
func (c *Conversation) Session() *tally.Session {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.id = ""
	return c.s
}

// head opens the current session; a missing session is empty.
func (c *Conversation) head(ctx context.Context) (*projector.Outline, error) {
	o, err := c.s.Store().Loader().Peek(ctx, c.s.Subject())
	if err != nil {
		return nil, err
	}
	return o, tally.CheckKind(o.Subject(), o.Ledger(), events.KindConversation)
}

// full is head with all steps.
func (c *Conversation) full(ctx context.Context) (*projector.Session, error) {
	o, err := c.head(ctx)
	if err != nil {
		return nil, err
	}
	return o.Session(ctx)
}

// update appends the payload that decide returns for the session, which must be a conversation. If an event of the
// types arrives before, it decides again.
func (c *Conversation) update(ctx context.Context, types []string, decide func(*projector.Outline) (events.Payload, error)) (log.Ack, error) {
	return c.s.Update(ctx, types, func(o *projector.Outline) ([]events.Payload, error) {
		if err := tally.CheckKind(o.Subject(), o.Ledger(), events.KindConversation); err != nil {
			return nil, err
		}
		p, err := decide(o)
		if err != nil || p == nil {
			return nil, err
		}
		return []events.Payload{p}, nil
	})
}

// Exists reports whether the conversation has any record.
func (c *Conversation) Exists(ctx context.Context) (bool, error) {
	kind, err := kindOf(ctx, c.s.Store(), c.s.Subject())
	return kind == events.KindConversation, err
}

// CreatedAt returns the time when the conversation was created, or else the time of its first record.
func (c *Conversation) CreatedAt(ctx context.Context) (events.Timestamp, error) {
	o, err := c.s.Store().Loader().Outline(ctx, c.s.Subject(), 0)
	if err == nil {
		err = tally.CheckKind(o.Subject(), o.Ledger(), events.KindConversation)
	}
	if err != nil {
		return "", err
	}
	if at := o.Ledger().CreatedAt; at != "" {
		return at, nil
	}
	rec, err := c.s.Store().Log.Record(ctx, o.First())
	if err != nil {
		return "", err
	}
	return events.TimestampOf(cmp.Or(rec.Time, rec.Recorded)), nil
}

// loaded returns the session at a position. If it does not exist, the error is ErrNotFound.
func (c *Conversation) loaded(ctx context.Context, position string) (*projector.Session, error) {
	s, err := c.s.Load(ctx, position)
	if err != nil {
		return nil, err
	}
	return s, tally.CheckKind(s.Subject, s.Ledger, events.KindConversation)
}

// Load returns the current conversation. If it does not exist, the error is ErrNotFound. If its steps were never
// saved, it is ErrNoSteps; a conversation that was saved without steps has none.
func (c *Conversation) Load(ctx context.Context) (*Data, error) {
	return c.LoadAt(ctx, "")
}

// LoadAt returns the conversation at a position, such as @1234, #12 or a time. Every earlier content stays readable.
func (c *Conversation) LoadAt(ctx context.Context, position string) (*Data, error) {
	s, err := c.loaded(ctx, position)
	if err != nil {
		return nil, err
	}
	d, err := decodeThread(s)
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", c.s.Subject().Name(), err)
	}
	if position == "" {
		c.see(d.filled, d.c.ID)
	}
	return d.c, nil
}

// decodeThread decodes the steps of a session. It does not change the session's threads.
func decodeThread(s *projector.Session) (*decoding, error) {
	th := s.Threads[events.MainThread]
	if th == nil {
		return nil, ErrNoSteps
	}
	d := &decoding{c: &Data{ID: s.Subject.ID, Revision: s.Offset()}}
	if meta, err := rawjson.Object(th.Meta); err == nil { // members of a conversation without lines
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

// Metadata returns the conversation's free object, or nil.
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

// SetMetadata sets the conversation's free object; nil removes it. If its steps were never saved, the conversation is
// saved without steps.
func (c *Conversation) SetMetadata(ctx context.Context, metadata events.Raw) (Saved, error) {
	if err := checkMetadata(metadata); err != nil {
		return Saved{}, err
	}
	return c.save(ctx, func(s *projector.Session) *Data {
		data := &Data{ID: c.ID()}
		if d, err := decodeThread(s); err == nil {
			data = d.c
		}
		data.Metadata = metadata
		return data
	})
}

// see records the id on the first of a number of lines.
func (c *Conversation) see(lines int, id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.id = id; lines == 0 {
		c.id = ""
	}
}

// Append appends steps, as one event. When it returns, they are stored and survive a crash of the program. Only the
// first call of a handle loads the conversation; the cost of later ones depends only on their steps.
//
// Other writers may append, too. If the conversation was rewound below the state that this handle has read (by Load,
// Save or Append), the steps are stale: they are stored, but not in effect, and the ack reports that. If a value is
// not a step, the error is *events.InvalidError, and nothing is written.
//
// After log.ErrUnknown, the steps may or may not be stored: Load shows it.
func (c *Conversation) Append(ctx context.Context, added ...Step) (log.Ack, error) {
	if len(added) == 0 {
		return log.Ack{}, &events.InvalidError{Field: "steps", Reason: "nothing to append"}
	}
	if err := (&Data{ID: c.ID(), Steps: added}).validate(); err != nil {
		return log.Ack{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock() // steps of one handle are stored in the order of the calls
	if c.id == "" {
		return c.appendFirst(ctx, added)
	}
	p, err := appended(&Data{ID: c.id}, 1, added)
	if err != nil {
		return log.Ack{}, err
	}
	ack, err := c.s.Append(ctx, log.Any, p)
	if ack.Stale {
		c.id = "" // load again
	}
	return ack, err
}

// appendFirst loads the conversation before it appends. The first line of all gets the metadata of a conversation
// without lines.
func (c *Conversation) appendFirst(ctx context.Context, added []Step) (log.Ack, error) {
	var id string
	ack, err := c.update(ctx, projector.MoveTypes(), func(o *projector.Outline) (events.Payload, error) {
		s, err := o.Session(ctx)
		if err != nil {
			return nil, err
		}
		d, err := decodeThread(s)
		if errors.Is(err, ErrNoSteps) {
			d = &decoding{c: &Data{ID: c.ID()}}
		}
		id = d.c.ID
		return appended(d.c, d.filled, added)
	})
	if err == nil {
		c.id = id
	}
	return ack, err
}

// appended returns the event that appends steps after a number of lines.
func appended(d *Data, lines int, added []Step) (*events.TurnAppended, error) {
	p := &events.TurnAppended{}
	for i, s := range added {
		raw, err := encodeStep(s, lines+i, d.ID, d.Metadata)
		if err != nil {
			return nil, inside("steps["+strconv.Itoa(i)+"]", rawError("", err))
		}
		p.Entries = append(p.Entries, steps.Entry(raw, s.fields))
	}
	return p, nil
}
