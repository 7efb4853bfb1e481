package projector

import (
	"slices"

	"github.com/tallylog/tally/events"
)

// StackMove is a change of the rewind stack. The moves of a session, in order, determine the stack after each move. A
// rewind stores the number of moves before it, not the stack: copies for many rewinds of a large stack would grow
// quadratically.
type StackMove struct {
	Do string        `json:"do"`
	ID string        `json:"id,omitempty"`
	At events.Offset `json:"at,omitempty"`
	To int           `json:"to,omitempty"` // of moveBack: the number of moves
}

// Values of StackMove.Do.
const (
	movePush  = "push"  // pushes an entry
	moveCut   = "cut"   // removes an entry and all above it
	moveDrop  = "drop"  // removes an entry
	moveClear = "clear" // removes all entries
	moveBelow = "below" // removes the entries whose point lies at or above an offset
	moveBack  = "back"  // restores the stack after so many moves
)

func (l *Ledger) push(e StackEntry) {
	l.Moves = append(l.Moves, StackMove{Do: movePush, ID: e.ID, At: e.At})
	l.Stack = append(slices.Clip(l.Stack), e)
}

// take applies a move that removes entries. If no entry matches, nothing changes.
func (l *Ledger) take(m StackMove, gone func(StackEntry) bool) {
	if !slices.ContainsFunc(l.Stack, gone) {
		return
	}
	l.Moves = append(l.Moves, m)
	l.Stack = slices.DeleteFunc(slices.Clone(l.Stack), gone)
}

// putBack restores the stack after the first n moves.
func (l *Ledger) putBack(n int) {
	stack := l.stackAfter(n)
	l.Moves = append(l.Moves, StackMove{Do: moveBack, To: n})
	l.Stack = stack
}

// StackBefore returns the rewind stack before a rewind of the session.
func (l *Ledger) StackBefore(r Rewind) []StackEntry { return l.stackAfter(r.Moves) }

// stackAfter walks the first n moves backwards, and collects the entries that no later move among them removed. An id
// is pushed once in a session.
func (l *Ledger) stackAfter(n int) []StackEntry {
	var stack []StackEntry
	below, cut, dropped := events.MaxOffset+1, "", make(map[string]bool)
	for n = min(n, len(l.Moves)); n > 0; {
		n--
		switch m := l.Moves[n]; m.Do {
		case movePush:
			if cut == "" && m.At < below && !dropped[m.ID] {
				stack = append(stack, StackEntry{m.ID, m.At})
			}
			if m.ID == cut {
				cut = ""
			}
		case moveCut:
			if cut == "" {
				cut = m.ID
			}
		case moveDrop:
			dropped[m.ID] = true
		case moveClear:
			n = 0
		case moveBelow:
			below = min(below, m.At)
		case moveBack:
			n = min(n, m.To)
		}
	}
	slices.Reverse(stack)
	return stack
}
