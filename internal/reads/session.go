package reads

import (
	"context"
	"errors"
	"fmt"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/projector"
)

// State is a session at a position.
type State struct {
	Session events.Fields   `json:"session"` // id, kind and fields; at an earlier position only what never changes
	Offset  events.Offset   `json:"offset"`  // of the last record up to the position
	Head    events.Offset   `json:"head"`    // of the last record
	Threads []Length        `json:"threads"`
	Undo    bool            `json:"undo"`              // there is a rewind that can be undone
	Redo    bool            `json:"redo"`              // there is an undo that can be undone
	Damaged []events.Offset `json:"damaged,omitempty"` // records up to the position that cannot be read
}

// Length is the number of turns of a thread.
type Length struct {
	Thread string     `json:"thread"`
	Turns  int        `json:"turns"`
	Meta   events.Raw `json:"meta,omitempty"`
}

// Session returns a session of the store at a position, without its turns. If the session or the position does not
// exist, the error is tally.ErrNotFound.
func (r Reader) Session(ctx context.Context, id, at string) (State, error) {
	head, past, err := r.pastOf(ctx, id, at)
	damage, hurt := errors.AsType[*projector.HoleError](err)
	if projector.Tolerate(err) != nil {
		return State{}, err
	}
	s := State{Session: Birth(head.Subject(), head.Ledger()), Offset: past.Offset(), Head: head.Offset(), Threads: []Length{}}
	if past == &head.Past {
		s.Session = Fields(head.Subject(), head.Ledger())
	}
	if hurt {
		s.Damaged = damage.Damaged
	}
	for _, name := range past.Names() {
		s.Threads = append(s.Threads, Length{name, past.Len(name), past.Meta(name)})
	}
	if !events.CanRewind(head.Ledger().Kind) {
		return s, nil
	}
	_, undo := head.Undo(ctx)
	_, redo := head.Redo(ctx)
	s.Undo, s.Redo = undo == nil, redo == nil
	for _, err := range []error{undo, redo} {
		if err != nil && !errors.Is(err, projector.ErrNothingToUndo) && !errors.Is(err, projector.ErrNothingToRedo) {
			return State{}, err
		}
	}
	return s, nil
}

// pastOf opens a session of the store, and its threads at a position. Both are valid with a tolerable error.
func (r Reader) pastOf(ctx context.Context, id, at string) (*projector.Outline, *projector.Past, error) {
	s, err := r.session(id)
	if err != nil {
		return nil, nil, err
	}
	head, hole := s.Outline(ctx)
	if err := projector.Tolerate(hole); err != nil {
		return nil, nil, err
	}
	past, err := PastAt(ctx, head, hole, at)
	return head, past, err
}

// session returns the handle of a session.
func (r Reader) session(id string) (*tally.Session, error) {
	s := r.Store.Session(id)
	if err := s.Subject().Validate(); err != nil {
		return nil, err
	}
	return s, nil
}

// PastAt returns the threads of a session at a position. hole is the damage that the session's outline came with. The
// errors are those of [tally.Session.Load].
func PastAt(ctx context.Context, head *projector.Outline, hole error, position string) (*projector.Past, error) {
	p, err := projector.ParsePosition(position)
	if err != nil {
		return nil, err
	}
	if p.IsHead() {
		return &head.Past, hole
	}
	if hole != nil && !p.IsOffset() {
		return nil, projector.Refuse(hole)
	}
	at, err := head.Resolve(ctx, p)
	if err != nil {
		return nil, err
	}
	past, err := head.Back(ctx, at)
	if at < head.First() {
		err = projector.Refuse(err)
	}
	return past, err
}

// Birth returns the id of a session and the fields that never change.
func Birth(sub events.Subject, l *projector.Ledger) events.Fields {
	var list events.Fields
	add := func(name, value string) {
		if value != "" {
			list = append(list, events.Field{Name: name, Value: rawjson.AppendString(nil, value)})
		}
	}
	add("id", render.ID(sub.ID))
	add("namespace", sub.Namespace)
	add("kind", l.Kind)
	add("createdAt", string(l.CreatedAt))
	if f := l.Fork; f != nil {
		list = append(list, events.Field{Name: "fork", Value: mustMarshal(f)})
	}
	if p := l.Parent; p != nil {
		list = append(list, events.Field{Name: "parent", Value: mustMarshal(p)})
	}
	return list
}

// Fields returns the id, the kind and the fields of a session.
func Fields(sub events.Subject, l *projector.Ledger) events.Fields {
	list := Birth(sub, l)
	for _, f := range l.Fields {
		if _, taken := list.Get(f.Name); !taken {
			list = append(list, f)
		}
	}
	return list
}

func mustMarshal(v any) events.Raw {
	raw, err := rawjson.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("reads: %v", err)) // plain structs of strings and numbers
	}
	return raw
}
