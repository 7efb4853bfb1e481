// Package share removes repeated messages from a job's checkpoints and events. A runtime repeats the whole list of
// messages in every checkpoint and in many events. The log keeps each message once, as a turn of a thread, and records
// which turns a list consisted of (events.Lists).
package share

import (
	"bytes"
	"crypto/sha256"
	"strconv"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
)

// Messages indexes the turns of a session's threads by content. The zero value is a session without turns. It is not
// safe for concurrent use.
type Messages struct {
	ids     map[[sha256.Size]byte]int // content -> its number
	first   []position                // by number: its first position
	threads map[string][]int          // the numbers of a thread's turns, in order
}

// position is the position of a turn in a thread.
type position struct {
	thread string
	index  int
}

// Add notes turns that were appended to a thread. A nil stands for a turn that is not JSON, and keeps its position.
func (m *Messages) Add(thread string, turns ...events.Raw) {
	if m.ids == nil {
		m.ids, m.threads = make(map[[sha256.Size]byte]int), make(map[string][]int)
	}
	for _, raw := range turns {
		n := -1
		if raw != nil {
			n = m.number(sha256.Sum256(raw), position{thread, len(m.threads[thread])})
		}
		m.threads[thread] = append(m.threads[thread], n)
	}
}

func (m *Messages) number(sum [sha256.Size]byte, at position) int {
	n, ok := m.ids[sum]
	if !ok {
		n = len(m.first)
		m.ids[sum], m.first = n, append(m.first, at)
	}
	return n
}

// Len returns the number of turns of a thread.
func (m *Messages) Len(thread string) int { return len(m.threads[thread]) }

// Split is a value without its shared lists.
type Split struct {
	Raw   events.Raw     // the value, with [] for each list, and null for a single element
	Lists events.Lists   // the removed lists; nil: Raw is the whole value
	New   []events.Entry // the turns to append before the value, all to threads of the writer
}

// ResultsOf returns the thread for the tool calls and results of a thread's writer. They are not messages, so they have
// a thread of their own. No other writer appends to it.
func ResultsOf(own string) string { return "results/" + own }

// Whole returns a value with nothing removed.
func Whole(raw events.Raw) Split { return Split{Raw: raw} }

// Split removes the shared lists and single messages from a checkpoint or an event. The caller appends New, turns that
// the session does not have, to the threads own and ResultsOf(own), to which no other writer appends, and then calls
// Add. A list stays in the value if its replacement would be longer, or if it could not be restored byte for byte, as
// with white space between elements. A value that is not an object stays whole, and so does one of more than
// events.MaxValue bytes, which the append refuses.
func (m *Messages) Split(own string, raw events.Raw) (Split, error) {
	s := splitting{Messages: m, own: own, added: make(map[[sha256.Size]byte]position), grown: make(map[string]int)}
	top, err := rawjson.Object(raw)
	if err != nil {
		if _, syntax := err.(*rawjson.SyntaxError); syntax {
			return Split{}, &events.InvalidError{Field: "raw", Reason: err.Error()}
		}
		return Whole(raw), nil // an array, or a repeated name: no pointer leads into it
	}
	if len(raw) > events.MaxValue {
		return Whole(raw), nil // no reader would restore it
	}
	for _, p := range listLocations {
		if value, ok := find(top, p.pointer); ok {
			s.take(p, value)
		}
	}
	if len(s.lists) == 0 {
		return Whole(raw), nil
	}
	rest, err := without(raw, s.lists)
	if err != nil {
		return Split{}, err
	}
	return Split{Raw: rest, Lists: s.lists, New: s.entries}, nil
}

// splitting is a call of Split in progress.
type splitting struct {
	*Messages
	own     string
	lists   events.Lists
	entries []events.Entry
	added   map[[sha256.Size]byte]position // positions of the new entries
	grown   map[string]int                 // number of new entries by thread
}

// listLocation is the position of a list that checkpoints or events repeat.
type listLocation struct {
	pointer string
	tools   bool // of tool calls and results, not of messages
	single  bool // a single element that is in lists elsewhere
}

// elements returns the elements at a location, or nil if they cannot be removed.
func (p listLocation) elements(value events.Raw) []events.Raw {
	if p.single {
		if value[0] != '{' {
			return nil
		}
		return []events.Raw{value}
	}
	elems, err := rawjson.Array(value)
	if err != nil || !bytes.Equal(rawjson.AppendArray(nil, elems), value) {
		return nil
	}
	return elems
}

// aside is the approximate cost in bytes of a turn that is not a message: its entry, and its rows in views.
const aside = 400

// take removes the elements at a location if that makes the value smaller.
func (s *splitting) take(p listLocation, value events.Raw) {
	elems := p.elements(value)
	if len(elems) == 0 {
		return
	}
	thread := s.own
	if p.tools {
		thread = ResultsOf(s.own)
	}
	var pieces []events.Piece
	var more []events.Entry
	sums := make([][sha256.Size]byte, 0, len(elems))
	base := s.Len(thread) + s.grown[thread]
	for _, raw := range elems {
		sum := sha256.Sum256(raw)
		at, known := s.where(sum, pieces)
		if !known {
			at = position{thread, base + len(more)}
			s.added[sum] = at
			more, sums = append(more, events.Entry{Thread: thread, Turn: raw}), append(sums, sum)
		}
		pieces = push(pieces, at)
	}
	instead := saidIn(p.pointer, pieces)
	if p.tools && len(more) > 0 {
		instead += aside // nothing reads them there, so it must save space
	}
	if instead >= len(value) {
		for _, sum := range sums {
			delete(s.added, sum)
		}
		return
	}
	if s.lists == nil {
		s.lists = make(events.Lists)
	}
	s.lists[p.pointer] = pieces
	s.entries, s.grown[thread] = append(s.entries, more...), s.grown[thread]+len(more)
}

// where returns the position of a turn with some content. If there are several, it prefers the one after the last
// piece.
func (s *splitting) where(sum [sha256.Size]byte, pieces []events.Piece) (position, bool) {
	n, ok := s.ids[sum]
	if !ok {
		at, ok := s.added[sum]
		return at, ok
	}
	if k := len(pieces); k > 0 {
		last := pieces[k-1]
		if turns := s.threads[last.Thread]; last.To < len(turns) && turns[last.To] == n {
			return position{last.Thread, last.To}, true
		}
	}
	return s.first[n], true
}

// push appends a turn to pieces.
func push(pieces []events.Piece, at position) []events.Piece {
	if k := len(pieces) - 1; k >= 0 && pieces[k].Thread == at.thread && pieces[k].To == at.index {
		pieces[k].To++
		return pieces
	}
	return append(pieces, events.Piece{Thread: at.thread, From: at.index, To: at.index + 1})
}

// saidIn returns the number of bytes that replace a list: its pieces, and about as much for the entry of a new turn.
func saidIn(pointer string, pieces []events.Piece) int {
	n := len(`"":[],`) + len(pointer)
	for _, p := range pieces {
		n += len(`{"thread":"","to":},`) + len(p.Thread) + digits(p.To)
		if p.From > 0 {
			n += len(`"from":,`) + digits(p.From)
		}
	}
	return n
}

func digits(n int) int { return len(strconv.Itoa(n)) }

// find returns the value at a pointer of the table.
func find(top rawjson.Members, pointer string) (events.Raw, bool) {
	names := strings.Split(pointer[1:], "/")
	for _, name := range names[:len(names)-1] {
		if top = top.Object(name); top == nil {
			return nil, false
		}
	}
	return top.Get(names[len(names)-1])
}

// without replaces each list by [], and a single element by null.
func without(raw events.Raw, lists events.Lists) (events.Raw, error) {
	for pointer := range lists {
		from, to, err := rawjson.Locate(raw, pointer)
		if err != nil {
			return nil, &events.InvalidError{Field: "raw", Reason: err.Error()}
		}
		none := "null"
		if raw[from] == '[' {
			none = "[]"
		}
		raw = append(append(append(make(events.Raw, 0, len(raw)-(to-from)+len(none)), raw[:from]...), none...), raw[to:]...)
	}
	return raw, nil
}
