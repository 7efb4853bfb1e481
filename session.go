package tally

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// Session is a handle on one session. It is cheap, does no I/O until a method is
// called, and is safe for concurrent use.
type Session struct {
	st  *Store
	sub events.Subject
}

// Session returns a handle on a session, whether it exists or not. A session comes to be
// with its first event, or by [Session.Create].
func (st *Store) Session(id string) *Session {
	return &Session{st: st, sub: events.Session(st.config.Namespace, id)}
}

// Store is the store that the session is in.
func (s *Session) Store() *Store { return s.st }

// ID is the session's id.
func (s *Session) ID() string { return s.sub.ID }

// Subject names the session in the log.
func (s *Session) Subject() events.Subject { return s.sub }

// Load returns the session as of a position, "" or "head" for now; the package comment
// and [projector.Position] list the others. A session that does not exist, or has no such
// position, is ErrNotFound. At "start" the session is there and empty. Load reads all
// turns of the session; Outline reads those that are asked for.
func (s *Session) Load(ctx context.Context, position string) (*projector.Session, error) {
	p, err := projector.ParsePosition(position)
	if err != nil {
		return nil, err
	}
	if p.IsHead() {
		return s.st.loader.Session(ctx, s.sub, 0)
	}
	head, err := s.st.loader.Outline(ctx, s.sub, 0)
	if err != nil {
		return nil, err
	}
	at, err := head.Resolve(ctx, p)
	switch {
	case err != nil:
		return nil, err
	case at == 0 && head.Offset() != 0:
		return projector.NewSession(s.sub), nil
	case at < head.First():
		return s.inherited(ctx, at)
	case at == head.Offset() && len(head.Damaged()) > 0:
		at = 0 // what is damaged may come after the last record that is not
	}
	return s.st.loader.Session(ctx, s.sub, at)
}

// inherited returns a fork as of a position before its own first event: the threads
// are those of its parent there, and nothing has happened to it yet.
func (s *Session) inherited(ctx context.Context, at events.Offset) (*projector.Session, error) {
	head, err := s.st.loader.Session(ctx, s.sub, 0)
	if err != nil {
		return nil, err
	}
	threads, err := s.st.loader.InheritedThreads(ctx, head, at)
	if err != nil {
		return nil, err
	}
	early := projector.NewSession(s.sub)
	early.Threads = threads
	return early, nil
}

// Outline opens the session as it is now without reading its turns: they are read as
// they are asked for, so that the end of a long session is there at once. A session
// that does not exist is ErrNotFound.
func (s *Session) Outline(ctx context.Context) (*projector.Outline, error) {
	return s.st.loader.Outline(ctx, s.sub, 0)
}

// Create makes the session with a kind, a title and what else p says. A session that
// exists already is ErrExists.
func (s *Session) Create(ctx context.Context, p events.SessionCreated) (log.Ack, error) {
	e, err := events.New(s.st.config.Source, s.sub, &p)
	if err != nil {
		return log.Ack{}, err
	}
	ack, err := s.st.Append(ctx, s.sub, log.At(0), e)
	if errors.Is(err, log.ErrConflict) {
		return ack, fmt.Errorf("%s: %w", s.sub, ErrExists)
	}
	return ack, err
}

// AppendTurns appends turns to a thread, such as events.MainThread, as one event: all of
// them or none. A turn is any JSON value and is kept byte for byte. When the call returns
// without an error, the turns are as safe as the Ack's Durability says.
func (s *Session) AppendTurns(ctx context.Context, thread string, turns ...json.RawMessage) (log.Ack, error) {
	p := &events.TurnAppended{}
	for _, turn := range turns {
		p.Entries = append(p.Entries, events.Entry{Thread: thread, Turn: turn})
	}
	e, err := events.New(s.st.config.Source, s.sub, p)
	if err != nil {
		return log.Ack{}, err
	}
	return s.st.Append(ctx, s.sub, log.Any, e)
}

// Move is a rewind, undo or redo that can be looked at before it is made.
type Move struct {
	Event   *events.SessionRewound
	Seen    events.Offset      // the head that the decision was made on
	Leaves  []projector.TurnAt // turns that go out of effect
	Returns []projector.TurnAt // turns that come back
}

// PlanRewind says what moving the head to a position, as Load takes them, would do.
// Nothing is written: Move does that. reason is for those who read the log; "" is none.
func (s *Session) PlanRewind(ctx context.Context, position, reason string) (*Move, error) {
	p, err := projector.ParsePosition(position)
	if err != nil {
		return nil, err
	}
	return s.plan(ctx, func(head *projector.Session) (*events.SessionRewound, error) {
		to, err := s.st.loader.Resolve(ctx, head, p)
		if err != nil {
			return nil, err
		}
		return head.Rewind(to, reason)
	})
}

// PlanUndo says what taking back the newest rewind would do. If there is no rewind to
// undo, the error is projector.ErrNothingToUndo.
func (s *Session) PlanUndo(ctx context.Context) (*Move, error) {
	return s.plan(ctx, (*projector.Session).Undo)
}

// PlanRedo says what taking back the newest undo would do. If there is none, or a rewind
// came after it, the error is projector.ErrNothingToRedo.
func (s *Session) PlanRedo(ctx context.Context) (*Move, error) {
	return s.plan(ctx, (*projector.Session).Redo)
}

func (s *Session) plan(ctx context.Context, decide func(*projector.Session) (*events.SessionRewound, error)) (*Move, error) {
	head, err := s.st.loader.Session(ctx, s.sub, 0)
	if err != nil {
		return nil, err
	}
	p, err := decide(head)
	if err != nil {
		return nil, err
	}
	target, err := s.Load(ctx, p.To.String())
	if err != nil {
		return nil, err
	}
	m := &Move{Event: p, Seen: head.Offset()}
	m.Leaves, m.Returns = projector.Changes(head.Threads, target.Threads)
	return m, nil
}

// Move makes a planned move. If a turn was appended or the head moved since the
// plan, nothing is written and the error matches log.ErrConflict; cost and
// progress do not get in the way.
func (s *Session) Move(ctx context.Context, m *Move) (log.Ack, error) {
	e, err := events.New(s.st.config.Source, s.sub, m.Event)
	if err != nil {
		return log.Ack{}, err
	}
	return s.st.Append(ctx, s.sub, log.Since(m.Seen, projector.MoveTypes()...), e)
}

// Fork makes a new session that begins with the threads of this one at a
// position. Nothing is copied, and what either does later does not matter to the
// other. If the new session exists already, the error is ErrExists.
func (s *Session) Fork(ctx context.Context, position, id string) (*Session, log.Ack, error) {
	p, err := projector.ParsePosition(position)
	if err != nil {
		return nil, log.Ack{}, err
	}
	head, err := s.Outline(ctx)
	if err != nil {
		return nil, log.Ack{}, err
	}
	at, err := head.Resolve(ctx, p)
	if err == nil && at < head.First() {
		err = &projector.PositionError{Subject: s.sub, Position: p.String(), Reason: "a fork begins at or after the session's own first event; fork its parent instead"}
	}
	if err != nil {
		return nil, log.Ack{}, err
	}
	fork := s.st.Session(id)
	ack, err := fork.Create(ctx, events.SessionCreated{
		Kind:      head.Ledger().Kind,
		CreatedAt: events.TimestampOf(s.st.Now()),
		Title:     head.Ledger().Text("title"),
		Fork:      &events.Fork{Session: s.sub.ID, Offset: at},
	})
	return fork, ack, err
}
