package projector

import (
	"slices"

	"github.com/tallylog/tally/events"
)

// StackMove is a change of the rewind stack. The moves of a session, in order, say what the
// stack was after each of them. A rewind stores how many there were before it, not the
// stack: many rewinds of a large stack would take the square of their number.
type StackMove struct {
	Do string        `json:"do"`
	ID string        `json:"id,omitempty"`
	At events.Offset `json:"at,omitempty"`
	To int           `json:"to,omitempty"` // of moveBack: the number of moves
}

// What a move does.
const (
	movePush  = "push"  // an entry is on top
	moveCut   = "cut"   // an entry is gone, with all above it
	moveDrop  = "drop"  // an entry is gone
	moveClear = "clear" // all entries are gone
	moveBelow = "below" // the entries whose point lies at or above an offset are gone
	moveBack  = "back"  // the stack is as it was after so many moves
)

func (l *Ledger) push(e StackEntry) {
	l.Moves = append(l.Moves, StackMove{Do: movePush, ID: e.ID, At: e.At})
	l.Stack = append(slices.Clip(l.Stack), e)
}

// take applies a move that takes entries away. If there are none of these, nothing moves.
func (l *Ledger) take(m StackMove, gone func(StackEntry) bool) {
	if !slices.ContainsFunc(l.Stack, gone) {
		return
	}
	l.Moves = append(l.Moves, m)
	l.Stack = slices.DeleteFunc(slices.Clone(l.Stack), gone)
}

// putBack makes the stack what it was after the first n moves.
func (l *Ledger) putBack(n int) {
	stack := l.stackAfter(n)
	l.Moves = append(l.Moves, StackMove{Do: moveBack, To: n})
	l.Stack = stack
}

// StackBefore returns the rewind stack as it was before a rewind of the session.
func (l *Ledger) StackBefore(r Rewind) []StackEntry { return l.stackAfter(r.Moves) }

// stackAfter goes back over the first n moves, and collects the entries that none of the
// later ones among them took away. An id is pushed once in a session.
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
