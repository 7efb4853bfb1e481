package reads

import (
	"context"
	"fmt"
	"slices"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// Operations of a plan.
const (
	Rewind = "rewind"
	Undo   = "undo"
	Redo   = "redo"
)

// PlanQuery asks for the effect of a move.
type PlanQuery struct {
	Session string
	Op      string // Rewind, Undo or Redo
	To      string // position, for Rewind
	Reason  string // for Rewind; "": none
}

// Plan is the effect of a move. Move makes it.
type Plan struct {
	Session string        `json:"session"`
	Op      string        `json:"op"`
	To      events.Offset `json:"to"`
	Undoes  events.Offset `json:"undoes,omitempty"`
	Reason  string        `json:"reason,omitempty"`
	Seen    events.Offset `json:"seen"`            // the head when it was planned
	EventID string        `json:"eventId"`         // of the event that the move appends
	There   bool          `json:"there,omitempty"` // the head is there already: a move writes nothing
	Leaves  Changed       `json:"leaves"`          // turns that go out of effect
	Returns Changed       `json:"returns"`         // turns that come back
	Remarks []string      `json:"remarks,omitempty"`
}

// Changed are turns that a move takes or brings.
type Changed struct {
	Count int                `json:"count"`
	First []projector.TurnAt `json:"first"` // the first few
}

// maxFirst bounds the turns of a plan.
const maxFirst = 5

// Plan plans a move of a session of the store. It writes nothing. Its errors are those of [tally.Session.PlanRewind],
// PlanUndo and PlanRedo.
func (r Reader) Plan(ctx context.Context, q PlanQuery) (Plan, error) {
	s, err := r.session(q.Session)
	if err != nil {
		return Plan{}, err
	}
	m, err := plan(ctx, s, q)
	if err != nil {
		return Plan{}, err
	}
	p := Plan{Session: render.ID(q.Session), Op: q.Op, To: m.Event.To, Undoes: m.Event.Undoes, Reason: m.Event.Reason, Seen: m.Basis,
		EventID: r.Store.Stamp(events.Event{}).ID, There: m.There}
	if p.Leaves, err = changed(ctx, m.Leaves); err == nil {
		p.Returns, err = changed(ctx, m.Returns)
	}
	if err == nil && m.Leaves.Count > 0 {
		p.Remarks, err = r.remarks(ctx, s, m)
	}
	return p, err
}

// plan plans a move.
func plan(ctx context.Context, s *tally.Session, q PlanQuery) (*tally.Move, error) {
	switch {
	case q.Op != Rewind && q.To != "":
		return nil, &events.InvalidError{Field: "to", Reason: "only a rewind has a position"}
	case q.Op == Rewind && q.To == "":
		return nil, &events.InvalidError{Field: "to", Reason: "missing: want the position to go back to"}
	case q.Op == Rewind:
		return s.PlanRewind(ctx, q.To, q.Reason)
	case q.Op == Undo:
		return s.PlanUndo(ctx)
	case q.Op == Redo:
		return s.PlanRedo(ctx)
	}
	return nil, &events.InvalidError{Field: "op", Reason: fmt.Sprintf("%q: want rewind, undo or redo", q.Op)}
}

// changed reads the first of some turns.
func changed(ctx context.Context, turns projector.Turns) (Changed, error) {
	list, _, err := ReadTurns(ctx, turns, maxFirst)
	return Changed{turns.Count, list}, err
}

// ReadTurns reads at most limit turns, or all if it is 0, and returns how many it left out. The list is not nil.
func ReadTurns(ctx context.Context, turns projector.Turns, limit int) (list []projector.TurnAt, rest int, err error) {
	list = []projector.TurnAt{}
	for t, err := range turns.All(ctx) {
		if err != nil {
			return nil, 0, err
		}
		if limit > 0 && len(list) == limit {
			break
		}
		list = append(list, t)
	}
	return list, turns.Count - len(list), nil
}

// remarks returns what a caller should know about a move that takes turns.
func (r Reader) remarks(ctx context.Context, s *tally.Session, m *tally.Move) ([]string, error) {
	head, err := s.Outline(ctx)
	if err = projector.Tolerate(err); err != nil || head.Ledger().Kind != events.KindTranscript {
		return nil, err
	}
	return []string{fmt.Sprintf("The agent that wrote this session does not see the move: the next lines in its own file follow %v.", m.Event.To)}, nil
}

// MoveQuery asks for a move.
type MoveQuery struct {
	Session       string
	Plan          Plan
	Source, Actor string // of the event; "": those of the store
}

// Move makes a planned move. If a turn was appended or the head moved since the plan, the error is a *log.ConflictError,
// and nothing is written. A plan that is repeated after it was made is a duplicate. A plan that differs from what Plan
// would return is an *events.InvalidError. If the head is there already, nothing is written, and the ack is empty.
func (r Reader) Move(ctx context.Context, q MoveQuery) (log.Ack, error) {
	p := q.Plan
	s, err := r.session(q.Session)
	if err != nil {
		return log.Ack{}, err
	}
	if p.EventID == "" {
		return log.Ack{}, &events.InvalidError{Field: "plan.eventId", Reason: "missing"}
	}
	moved, err := r.movedSince(ctx, s.Subject(), p.Seen)
	if err != nil {
		return log.Ack{}, err
	}
	switch {
	case moved == 0: // else the append is a conflict, or a duplicate
		there, err := check(ctx, s, p)
		if err != nil || there {
			return log.Ack{}, err
		}
	case p.There:
		return log.Ack{}, &log.ConflictError{Subject: s.Subject(), Want: p.Seen, Have: moved}
	}
	e, err := events.New(q.Source, s.Subject(), &events.SessionRewound{To: p.To, Undoes: p.Undoes, Reason: p.Reason})
	if err != nil {
		return log.Ack{}, err
	}
	if e.ID = p.EventID; q.Actor != "" {
		e = e.WithExtension(events.ExtActor, q.Actor)
	}
	return r.Store.Append(ctx, s.Subject(), log.Since(p.Seen, projector.MoveTypes()...), e)
}

// movedSince returns the first record after an offset that changed the threads of a session, or 0.
func (r Reader) movedSince(ctx context.Context, sub events.Subject, seen events.Offset) (events.Offset, error) {
	types := projector.MoveTypes()
	for rec, err := range events.Readable(r.Store.Log.Read(ctx, events.Range{Subject: sub, After: seen})) {
		if err != nil {
			return 0, err
		}
		if slices.Contains(types, rec.Type) {
			return rec.Offset, nil
		}
	}
	return 0, nil
}

// check returns an error unless a session would plan the same move now. It reports whether the head is there already.
func check(ctx context.Context, s *tally.Session, p Plan) (there bool, err error) {
	q := PlanQuery{Op: p.Op, Reason: p.Reason}
	if p.Op == Rewind {
		q.To = p.To.String()
	}
	now, err := plan(ctx, s, q)
	if err != nil {
		return false, err
	}
	for _, m := range []struct {
		name       string
		have, want events.Offset
	}{{"to", p.To, now.Event.To}, {"undoes", p.Undoes, now.Event.Undoes}, {"seen", p.Seen, min(p.Seen, now.Basis)}} {
		if m.have != m.want {
			return false, &events.InvalidError{Field: "plan." + m.name, Reason: fmt.Sprintf("%v: the session has %v: plan the move again", m.have, m.want)}
		}
	}
	return now.There, nil
}

// Moved is a move that was made or planned, as the commands print it.
type Moved struct {
	Session string             `json:"session"`
	Written bool               `json:"written"`          // false with --dry-run, or if the head is at the position already
	Offset  events.Offset      `json:"offset,omitempty"` // of the written rewind
	To      events.Offset      `json:"to"`
	Undoes  events.Offset      `json:"undoes,omitempty"`
	Leaves  []projector.TurnAt `json:"leaves"`
	Returns []projector.TurnAt `json:"returns"`
	Files   []MovedFile        `json:"files,omitempty"`
}

// Read reads the turns of a move.
func (m *Moved) Read(ctx context.Context, move *tally.Move) (err error) {
	if m.Leaves, _, err = ReadTurns(ctx, move.Leaves, 0); err == nil {
		m.Returns, _, err = ReadTurns(ctx, move.Returns, 0)
	}
	return err
}

// MovedFile is a file that a move changes.
type MovedFile struct {
	Path   string `json:"path"`
	Action string `json:"action"` // restored, removed or failed
	Kept   string `json:"kept,omitempty"`
	Error  string `json:"error,omitempty"`
}
