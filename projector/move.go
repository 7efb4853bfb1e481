package projector

import (
	"context"
	"errors"
	"fmt"

	"github.com/tallylog/tally/events"
)

// Errors of Undo and Redo.
var (
	ErrNothingToUndo = errors.New("there is no rewind to undo")
	ErrNothingToRedo = errors.New("there is no undo to redo")
)

// Rewind returns the event that moves the head to an offset. The outline must be that of the head.
func (o *Outline) Rewind(ctx context.Context, to events.Offset, reason string) (*events.SessionRewound, error) {
	target, err := o.At(ctx, to)
	if err == nil && target == 0 {
		err = &PositionError{o.s.subject, to.String(), "a rewind cannot go before the session's first record"}
	}
	if err != nil {
		return nil, err
	}
	return &events.SessionRewound{To: target, Reason: reason}, nil
}

// Undo returns the event that takes back the newest rewind, or ErrNothingToUndo. Undos and rewinds that were taken back
// are skipped.
func (o *Outline) Undo(ctx context.Context) (*events.SessionRewound, error) {
	return o.takeBack(ctx, o.s.ledger.undoable(), ErrNothingToUndo)
}

// Redo returns the event that takes back the newest undo. If there is no undo, or another rewind came after it, Redo
// returns ErrNothingToRedo.
func (o *Outline) Redo(ctx context.Context) (*events.SessionRewound, error) {
	return o.takeBack(ctx, o.s.ledger.redoable(), ErrNothingToRedo)
}

func (o *Outline) takeBack(ctx context.Context, r *Rewind, nothing error) (*events.SessionRewound, error) {
	if r == nil {
		return nil, fmt.Errorf("%s: %w", o.s.subject.Name(), nothing)
	}
	to, err := o.Before(ctx, r.Offset)
	return &events.SessionRewound{To: to, Undoes: r.Offset}, err
}

// MoveTypes are the types whose events invalidate a decision to move the head. Costs and progress do not.
func MoveTypes() []string { return append(events.ThreadTypes(), events.TypeSessionRewound) }

// TurnAt is a turn with its thread and number.
type TurnAt struct {
	Thread string `json:"thread"`
	Number int    `json:"number"` // from 1
	Turn
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

// Gone lists the turns of a session's history that are not in its threads: rewound, stale, truncated or replaced. Turns
// of rejected records do not count. If records that the session was made from cannot be read, Gone returns the other
// turns with a *HoleError.
func (l *Loader) Gone(ctx context.Context, s *Session) ([]TurnAt, error) {
	rejected := make(map[events.Offset]bool)
	for _, v := range s.Ledger.Rejected {
		rejected[v.Offset] = true
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
		if rejected[rec.Offset] {
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
