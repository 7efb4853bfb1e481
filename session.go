package tally

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// Session is a handle on one session. It is cheap, does no I/O until a method is called, and is safe for concurrent
// use. It remembers how much of the session was read or written through it (Load and Outline of the head, every
// append). If another program rewinds that, an append through the handle is known to be stale. So each producer has a
// handle of its own.
type Session struct {
	st    *Store
	sub   events.Subject
	basis basis
}

// Session returns a handle on a session, whether it exists or not. The first event creates a session, or
// [Session.Create].
func (st *Store) Session(id string) *Session {
	return &Session{st: st, sub: events.Session(st.config.Namespace, id)}
}

// Store returns the store that the session is in.
func (s *Session) Store() *Store { return s.st }

// ID returns the session's id.
func (s *Session) ID() string { return s.sub.ID }

// Subject returns the session's subject in the log.
func (s *Session) Subject() events.Subject { return s.sub }

// Load returns the session as of a position, "" or "head" for now; the package comment and [projector.Position] list
// the others. If the session or the position does not exist, the error is ErrNotFound. At "start" the session exists
// and is empty. Load reads all turns of the session; Outline reads only turns that the caller asks for.
func (s *Session) Load(ctx context.Context, position string) (*projector.Session, error) {
	p, err := projector.ParsePosition(position)
	if err != nil {
		return nil, err
	}
	if p.IsHead() {
		now, err := s.st.loader.Session(ctx, s.sub, 0)
		if projector.Tolerate(err) == nil {
			s.basis.read(now.Offset())
		}
		return now, err
	}
	head, err := s.st.loader.Outline(ctx, s.sub, 0)
	if hole := err; projector.Tolerate(err) != nil || err != nil && !p.IsOffset() {
		return nil, projector.Refuse(hole)
	}
	at, err := head.Resolve(ctx, p)
	switch {
	case err != nil:
		return nil, err
	case at == 0 && head.Offset() != 0:
		return projector.NewSession(s.sub), nil
	case at < head.First():
		return s.inherited(ctx, head, at)
	case at == head.Offset() && len(head.Damaged()) > 0:
		at = 0 // damage may come after the last readable record
	}
	return s.st.loader.Session(ctx, s.sub, at)
}

// inherited returns a fork as of a position before its own first event: with its parent's threads there, and without
// events of its own.
func (s *Session) inherited(ctx context.Context, head *projector.Outline, at events.Offset) (*projector.Session, error) {
	past, err := head.Back(ctx, at)
	if err != nil {
		return nil, projector.Refuse(err)
	}
	early := projector.NewSession(s.sub)
	for _, name := range past.Names() {
		turns, err := past.Turns(ctx, name, 0, past.Len(name))
		if err != nil {
			return nil, err
		}
		early.Threads[name] = &projector.Thread{Turns: append([]projector.Turn{}, turns...), Meta: past.Meta(name)}
	}
	return early, nil
}

// Follow yields the session's records behind an offset, 0 for all, and then new ones, until ctx is done: see
// [log.Log.Follow]. Load and Outline return their effect on the turns. If the session does not exist yet, Follow waits
// for it.
func (s *Session) Follow(ctx context.Context, after events.Offset) iter.Seq2[events.Record, error] {
	return s.st.Log.Follow(ctx, events.Range{Subject: s.sub, After: after})
}

// Outline opens the session at head without reading its turns. They are read when the caller asks for them, so the end
// of a long session is available at once. If the session does not exist, the error is ErrNotFound.
func (s *Session) Outline(ctx context.Context) (*projector.Outline, error) {
	o, err := s.st.loader.Outline(ctx, s.sub, 0)
	if projector.Tolerate(err) == nil {
		s.basis.read(o.Offset())
	}
	return o, err
}

// Create creates the session with the kind, title and other fields of p. If it exists, the error is ErrExists.
func (s *Session) Create(ctx context.Context, p events.SessionCreated) (log.Ack, error) {
	ack, err := s.Append(ctx, log.At(0), &p)
	if errors.Is(err, log.ErrConflict) {
		return ack, fmt.Errorf("%s: %w", s.sub.Name(), ErrExists)
	}
	return ack, err
}

// AppendTurns appends turns to a thread, as one event. If the handle's basis was rewound meanwhile, the turns are
// stale: kept, but not in effect, and Ack.Stale is set.
func (s *Session) AppendTurns(ctx context.Context, thread string, turns ...json.RawMessage) (log.Ack, error) {
	p := &events.TurnAppended{}
	for _, turn := range turns {
		p.Entries = append(p.Entries, events.Entry{Thread: thread, Turn: turn})
	}
	return s.Append(ctx, log.Any, p)
}

// Append appends an event for each payload, all or none. With log.Any the events follow the handle's basis, and are
// stale if that was rewound meanwhile; another expectation states what they rest on. If no answer comes, Append sends
// the same events again, a few times; they are stored once.
func (s *Session) Append(ctx context.Context, expect log.Expect, payloads ...events.Payload) (log.Ack, error) {
	evs := make([]events.Event, len(payloads))
	for i, p := range payloads {
		var err error
		if evs[i], err = events.New(s.st.config.Source, s.sub, p); err != nil {
			return log.Ack{}, err
		}
	}
	return s.append(ctx, expect, evs...)
}

func (s *Session) append(ctx context.Context, expect log.Expect, evs ...events.Event) (log.Ack, error) {
	ready, err := s.st.prepare(ctx, s.sub, evs)
	if err != nil {
		return log.Ack{}, err
	}
	first, stale := expect, []events.Event(nil)
	if expect == log.Any {
		first, stale = s.behind(ready)
	}
	ack, err := s.st.put(ctx, s.sub, first, ready)
	if stale != nil && (errors.Is(err, log.ErrConflict) || events.IsDamage(err)) { // it is recorded in any case
		ack, err = s.st.put(ctx, s.sub, log.Any, stale)
	}
	if events.IsStored(err) {
		s.basis.wrote(expect, ready, ack)
	}
	return ack, err
}

// maxDecisions bounds how often Update decides.
const maxDecisions = 31

// Update calls decide with the session at head, and appends the payloads on the condition that no event of the given
// types came in between; otherwise it starts again, a limited number of times. Without types, no event at all may have
// come in between. If the session has no events, decide gets an empty one. If decide returns no payloads, Update
// appends nothing.
func (s *Session) Update(ctx context.Context, types []string, decide func(*projector.Outline) ([]events.Payload, error)) (log.Ack, error) {
	for try := 1; ; try++ {
		now, err := s.st.loader.Peek(ctx, s.sub)
		if err != nil {
			return log.Ack{}, err
		}
		payloads, err := decide(now)
		if err != nil {
			return log.Ack{}, err
		}
		expect := log.At(now.Offset())
		if len(types) > 0 && now.Offset() > 0 {
			expect = log.Since(now.Offset(), types...)
		}
		if len(payloads) == 0 {
			if len(types) > 0 && isWhole(expect) {
				s.basis.read(now.Offset()) // decide has accepted the threads
			}
			return log.Ack{}, nil
		}
		ack, err := s.Append(ctx, expect, payloads...)
		if !errors.Is(err, log.ErrConflict) || try == maxDecisions {
			return ack, err
		}
		if err := pause(ctx, try); err != nil {
			return log.Ack{}, err
		}
	}
}

// Move is a planned rewind, undo or redo.
type Move struct {
	Event   *events.SessionRewound
	Basis   events.Offset   // the head when it was planned
	Leaves  projector.Turns // turns that go out of effect
	Returns projector.Turns // turns that come back
	There   bool            // the threads are already as after the rewind: Move writes nothing
}

// PlanRewind returns the effect of moving the head to a position, as Load takes them. It writes nothing: Move does
// that. reason is for readers of the log and may be "". The threads and events of types of your own decide whether the
// head is there already: later costs, runs or fields do not count. If the session's kind cannot be rewound, such as an inbox, the error is a
// *KindError.
func (s *Session) PlanRewind(ctx context.Context, position, reason string) (*Move, error) {
	p, err := projector.ParsePosition(position)
	if err != nil {
		return nil, err
	}
	return s.plan(ctx, func(head *projector.Outline, ctx context.Context) (*events.SessionRewound, error) {
		to, err := head.Resolve(ctx, p)
		if err != nil {
			return nil, err
		}
		return head.Rewind(ctx, to, reason)
	})
}

// PlanUndo returns the effect of undoing the newest rewind. If there is no rewind to undo, the error is
// projector.ErrNothingToUndo.
func (s *Session) PlanUndo(ctx context.Context) (*Move, error) {
	return s.plan(ctx, (*projector.Outline).Undo)
}

// PlanRedo returns the effect of undoing the newest undo. If no undo exists, or a rewind came after it, the error is
// projector.ErrNothingToRedo.
func (s *Session) PlanRedo(ctx context.Context) (*Move, error) {
	return s.plan(ctx, (*projector.Outline).Redo)
}

func (s *Session) plan(ctx context.Context, decide func(*projector.Outline, context.Context) (*events.SessionRewound, error)) (*Move, error) {
	head, hole := s.st.loader.Outline(ctx, s.sub, 0)
	err := projector.Tolerate(hole)
	if err == nil {
		err = checkRewind(s.sub, head.Ledger())
	}
	if err != nil {
		return nil, err
	}
	p, err := decide(head, ctx)
	if err != nil {
		return nil, errors.Join(hole, err)
	}
	if hole != nil && (p.Undoes != 0 || p.To >= slices.Min(head.Damaged())) {
		return nil, hole // the part before the first lost record is known, and a rewind may go there
	}
	target, err := head.Back(ctx, p.To)
	if err != nil {
		return nil, err
	}
	m := &Move{Event: p, Basis: head.Offset()}
	m.Leaves, m.Returns = projector.Changes(&head.Past, target)
	if p.Undoes == 0 && m.Leaves.Count+m.Returns.Count == 0 {
		m.There, err = head.Equal(ctx, target)
		if m.There && err == nil {
			crosses, failed := head.Crosses(ctx, target)
			m.There, err = !crosses, failed
		}
	}
	return m, err
}

// Move makes a planned move. If a turn was appended or the head moved since the plan, nothing is written and the error
// matches log.ErrConflict; cost and progress do not conflict. If the head is there already, nothing is written either,
// and the ack is empty.
func (s *Session) Move(ctx context.Context, m *Move) (log.Ack, error) {
	now, err := s.st.loader.Peek(ctx, s.sub)
	if err = projector.Tolerate(err); err == nil { // the plan accepted the lost records
		err = checkRewind(s.sub, now.Ledger())
	}
	if err != nil {
		return log.Ack{}, err
	}
	if m.There {
		return log.Ack{}, s.stay(ctx, m.Basis)
	}
	return s.Append(ctx, log.Since(m.Basis, projector.MoveTypes()...), m.Event)
}

// stay is a move to the present head at an offset, unless it has moved since. As after any move, the handle knows the
// session as of there.
func (s *Session) stay(ctx context.Context, seen events.Offset) error {
	types := projector.MoveTypes()
	for rec, err := range s.st.Log.Read(ctx, events.Range{Subject: s.sub, After: seen}) {
		if err != nil {
			return err
		}
		if slices.Contains(types, rec.Type) {
			return &log.ConflictError{Subject: s.sub, Want: seen, Have: rec.Offset}
		}
	}
	s.basis.read(seen)
	return nil
}

// Fork creates a new session that begins with the threads of this one at a position. Nothing is copied, and later
// events of either session do not affect the other. If the new session exists already, the error is ErrExists. Without
// an id it is named fork-971-of-travel, after the offset of the position; the next one there fork-971-2-of-travel. So a
// unique prefix of the parent's id stays unique. If the session's kind cannot be forked, the error is a *KindError, as
// for PlanRewind.
func (s *Session) Fork(ctx context.Context, position, id string) (*Session, log.Ack, error) {
	p, err := projector.ParsePosition(position)
	if err != nil {
		return nil, log.Ack{}, err
	}
	head, hole := s.st.loader.Outline(ctx, s.sub, 0)
	err = projector.Tolerate(hole)
	if err == nil {
		err = checkRewind(s.sub, head.Ledger())
	}
	if err != nil {
		return nil, log.Ack{}, err
	}
	at, err := head.Resolve(ctx, p)
	if hole != nil && (err != nil || at >= slices.Min(head.Damaged())) {
		return nil, log.Ack{}, errors.Join(hole, err)
	}
	if err == nil && at < head.First() {
		err = &projector.PositionError{Subject: s.sub, Position: p.String(), Reason: "a fork begins at or after the session's own first event; fork its parent instead"}
	}
	if err != nil {
		return nil, log.Ack{}, err
	}
	created := events.SessionCreated{
		Kind:      head.Ledger().Kind,
		CreatedAt: events.TimestampOf(s.st.Now()),
		Title:     head.Ledger().Text("title"),
		Fork:      &events.Fork{Session: s.sub.ID, Offset: at},
	}
	for n := 1; ; n++ {
		fork := s.st.Session(cmp.Or(id, forkID(s.sub.ID, at, n)))
		ack, err := fork.Create(ctx, created)
		if id != "" || !errors.Is(err, ErrExists) {
			return fork, ack, err
		}
	}
}

// forkID returns the id of the n-th fork of a session at an offset. The part of an id before its last slash, such as a
// project, stays in front.
func forkID(parent string, at events.Offset, n int) string {
	i := strings.LastIndexByte(parent, '/') + 1
	number := fmt.Sprint(uint64(at))
	if n > 1 {
		number += fmt.Sprintf("-%d", n)
	}
	return parent[:i] + "fork-" + number + "-of-" + parent[i:]
}
