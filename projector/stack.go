package projector

import (
	"slices"

	"github.com/tallylog/tally/events"
)

// checkpointSaved adds a checkpoint, or a newer version of it. The first checkpoint of kind rewind with a new id is
// pushed onto the rewind stack.
func (l *Ledger) checkpointSaved(f Fact, p *events.CheckpointSaved) {
	c := l.Checkpoint(p.Kind, p.ID)
	if c == nil {
		c = &Checkpoint{ID: p.ID, Kind: p.Kind, Made: f.Offset}
		l.Checkpoints = append(l.Checkpoints, c)
		if l.checkpoints != nil {
			l.checkpoints[c.ref()] = c
		}
		if p.Kind == events.CheckpointRewind {
			l.push(StackEntry{p.ID, p.At})
		}
	}
	c.At, c.Run, c.Step, c.Status, c.Prompt, c.Parent = p.At, p.Run, p.Step, p.Status, p.Prompt, p.Parent
	c.Saved = append(c.Saved, f.Offset)
	c.Cleared = false
}

// Checkpoint returns a checkpoint by kind and id, or nil.
func (l *Ledger) Checkpoint(kind, id string) *Checkpoint {
	if l.checkpoints != nil {
		return l.checkpoints[checkpointRef{kind, id}]
	}
	for _, c := range l.Checkpoints {
		if c.Kind == kind && c.ID == id {
			return c
		}
	}
	return nil
}

// checkpointRef is the identity of a checkpoint inside its session.
type checkpointRef struct{ kind, id string }

func (c *Checkpoint) ref() checkpointRef { return checkpointRef{c.Kind, c.ID} }

func (l *Ledger) checkpointCleared(p *events.CheckpointCleared) {
	for _, c := range l.Checkpoints {
		if c.Kind == p.Kind && (p.ID == "" || p.ID == c.ID) {
			c.Cleared = true
		}
	}
	switch {
	case p.Kind != events.CheckpointRewind:
	case p.ID == "":
		l.take(StackMove{Do: moveClear}, func(StackEntry) bool { return true })
	default:
		l.take(StackMove{Do: moveDrop, ID: p.ID}, func(e StackEntry) bool { return e.ID == p.ID })
	}
}

// rewound applies the effect of a rewind on the stack:
//   - with a checkpoint, it and the entries pushed after it are used up;
//   - with undoes, the stack returns to its state before the rewind that was taken back;
//   - otherwise the entries whose point lies at or above the target are removed.
//
// Moves records each change, so earlier stacks can be rebuilt.
func (l *Ledger) rewound(f Fact, p *events.SessionRewound, before events.Offset) {
	l.Rewinds = append(l.Rewinds, Rewind{f.Offset, p.To, p.Undoes, p.Checkpoint, p.Reason, before, len(l.Moves)})
	switch {
	case p.Undoes != 0:
		l.putBack(l.rewindAt(p.Undoes).Moves) // History has checked that undoes names a rewind
	case p.Checkpoint != "":
		if i := slices.IndexFunc(l.Stack, func(e StackEntry) bool { return e.ID == p.Checkpoint }); i >= 0 {
			l.Moves = append(l.Moves, StackMove{Do: moveCut, ID: p.Checkpoint})
			l.Stack = slices.Clip(l.Stack[:i])
		}
	default:
		l.take(StackMove{Do: moveBelow, At: p.To}, func(e StackEntry) bool { return e.At >= p.To })
	}
}

func (l *Ledger) rewindAt(at events.Offset) *Rewind {
	for i := range l.Rewinds {
		if l.Rewinds[i].Offset == at {
			return &l.Rewinds[i]
		}
	}
	return nil
}

// undoable returns the newest rewind that is neither an undo nor taken back, or nil.
func (l *Ledger) undoable() *Rewind {
	return l.newest(func(r *Rewind) bool { return r.Undoes == 0 })
}

// redoable returns the newest undo that is not taken back, unless another rewind came after it.
func (l *Ledger) redoable() *Rewind {
	undo := l.newest(func(r *Rewind) bool {
		undone := l.rewindAt(r.Undoes)
		return undone != nil && undone.Undoes == 0
	})
	if undo == nil {
		return nil
	}
	for i := range l.Rewinds {
		if r := &l.Rewinds[i]; r.Offset > undo.Offset && r.Undoes == 0 {
			return nil
		}
	}
	return undo
}

// newest returns the newest rewind that matches and is in effect: no effective rewind has taken it back.
func (l *Ledger) newest(match func(*Rewind) bool) *Rewind {
	takenBack := make(map[events.Offset]bool)
	var found *Rewind
	for i := len(l.Rewinds) - 1; i >= 0; i-- {
		r := &l.Rewinds[i]
		if takenBack[r.Offset] {
			continue
		}
		if r.Undoes != 0 {
			takenBack[r.Undoes] = true
		}
		if found == nil && match(r) {
			found = r
		}
	}
	return found
}
