package projector

import (
	"context"
	"errors"
	"fmt"

	"github.com/tallylog/tally/events"
)

// Nothing to take back.
var (
	ErrNothingToUndo = errors.New("there is no rewind to undo")
	ErrNothingToRedo = errors.New("there is no undo to redo")
)

// Rewind returns the event that moves the head of s, loaded at head, to an offset.
func (s *Session) Rewind(to events.Offset, reason string) (*events.SessionRewound, error) {
	target := s.History.At(to)
	if target == 0 {
		return nil, &PositionError{s.Subject, to.String(), "a rewind cannot go before the session's first record"}
	}
	return &events.SessionRewound{To: target, Reason: reason}, nil
}

// Undo returns the event that takes back the newest rewind that is neither an undo
// nor taken back already, or ErrNothingToUndo.
func (s *Session) Undo() (*events.SessionRewound, error) {
	return s.takeBack(s.Ledger.undoable(), ErrNothingToUndo)
}

// Redo returns the event that takes back the newest undo, or ErrNothingToRedo if
// there is none or another rewind came after it.
func (s *Session) Redo() (*events.SessionRewound, error) {
	return s.takeBack(s.Ledger.redoable(), ErrNothingToRedo)
}

func (s *Session) takeBack(r *Rewind, nothing error) (*events.SessionRewound, error) {
	if r == nil {
		return nil, fmt.Errorf("%s: %w", s.Subject.Name(), nothing)
	}
	return &events.SessionRewound{To: s.History.before(r.Offset), Undoes: r.Offset}, nil
}

// MoveTypes are the types whose events invalidate a decision to move the head:
// cost and progress do not get in its way.
func MoveTypes() []string { return append(events.ThreadTypes(), events.TypeSessionRewound) }

// TurnAt is a turn at its place in a thread.
type TurnAt struct {
	Thread string `json:"thread"`
	Number int    `json:"number"` // from 1
	Turn
}

// Changes lists what a move from one state of the threads to another takes out
// of effect and what it brings back.
func Changes(from, to Threads) (leaves, returns []TurnAt) {
	return missingIn(to, from), missingIn(from, to)
}

// missingIn lists the turns of have that are not in the other threads.
func missingIn(other, have Threads) []TurnAt {
	type turnRef struct {
		offset events.Offset
		index  int
	}
	var list []TurnAt
	for _, name := range have.Names() {
		there := make(map[turnRef]bool)
		for _, t := range other.Turns(name) {
			there[turnRef{t.Offset, t.Index}] = true
		}
		for i, t := range have.Turns(name) {
			if !there[turnRef{t.Offset, t.Index}] {
				list = append(list, TurnAt{name, i + 1, t})
			}
		}
	}
	return list
}

// Gone lists the turns of a session's history that are not in its threads:
// rewound, late, truncated or replaced. A turn of a void record never was one. If records cannot be
// read that the session was made with, the others come with a *HoleError.
func (l *Loader) Gone(ctx context.Context, s *Session) ([]TurnAt, error) {
	void := make(map[events.Offset]bool)
	for _, v := range s.Ledger.Void {
		void[v.Offset] = true
	}
	ever := make(Threads) // every turn that any record brought
	var kept blobs
	var lost []events.Offset
	for rec, err := range l.Records(ctx, s) {
		if err == nil {
			rec, err = kept.resolve(ctx, l.Source, rec, l.maxValue())
		}
		if damage, is := errors.AsType[*events.DamageError](err); is {
			lost = append(lost, damage.Offset)
			continue
		}
		if void[rec.Offset] {
			continue
		}
		if err != nil {
			return nil, err
		}
		for name, brought := range Decode(rec).Brings() {
			ever.thread(name).Turns = append(ever.thread(name).Turns, brought.Turns...)
		}
	}
	return missingIn(s.Threads, ever), HoleOf(s.Subject, lost)
}
