// Package share takes out of a job's checkpoints and events what the job has already. A
// runtime repeats the whole list of messages in every checkpoint and in many an event; the
// log keeps each message once, as a turn of a thread, and says where a list stood which
// turns it was (events.Lists).
package share

import (
	"bytes"
	"crypto/sha256"
	"strconv"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
)

// Messages are what the threads of a session have, by content. The zero value is a session
// without turns. It is not safe for concurrent use.
type Messages struct {
	ids     map[[sha256.Size]byte]int // content -> its number
	first   []position                // by number: where it stands first
	threads map[string][]int          // the numbers of a thread's turns, in order
}

// place is a turn of a thread.
type position struct {
	thread string
	index  int
}

// Add notes turns that were appended to a thread. Of a turn that is no JSON the place is
// kept: a nil.
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

// Len is the number of turns of a thread.
func (m *Messages) Len(thread string) int { return len(m.threads[thread]) }

// Split is a value without the lists that are turns.
type Split struct {
	Raw   events.Raw     // the value, with [] in the place of each list, null in that of a single element
	Lists events.Lists   // what stood there; nil: nothing was taken out, Raw is the whole value
	New   []events.Entry // the turns to be appended before the value, all to threads of the writer
}

// ResultsOf names the thread that takes the calls and results of tools of the writer of a
// thread: they are no messages, so they are not read as such. Nobody else writes to it.
func ResultsOf(own string) string { return "results/" + own }

// Whole is a value of which nothing is taken out.
func Whole(raw events.Raw) Split { return Split{Raw: raw} }

// Split takes the lists out of a checkpoint or an event, and what stands by itself in one
// and in a list of another. What the session does not have yet
// is to be appended to the thread own, or ResultsOf(own), to which nobody else appends; the
// caller then tells Add. A list stays where it stands if it is shorter than what would be
// said in its place, and if putting it together again would not give the same bytes, as
// with white space between its elements. A value that is no object stays whole, and so does
// one of more than events.MaxValue bytes, which is refused when it is appended.
func (m *Messages) Split(own string, raw events.Raw) (Split, error) {
	s := splitting{Messages: m, own: own, added: make(map[[sha256.Size]byte]position), grown: make(map[string]int)}
	top, err := rawjson.Object(raw)
	if err != nil {
		if _, syntax := err.(*rawjson.SyntaxError); syntax {
			return Split{}, &events.InvalidError{Field: "raw", Reason: err.Error()}
		}
		return Whole(raw), nil // an array, or a name twice: nothing leads into it
	}
	if len(raw) > events.MaxValue {
		return Whole(raw), nil // no reader would put it together again
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

// splitting is one call of Split.
type splitting struct {
	*Messages
	own     string
	lists   events.Lists
	entries []events.Entry
	added   map[[sha256.Size]byte]position // what the entries will bring
	grown   map[string]int                 // how many, by thread
}

// listPlace is where a checkpoint or an event of a runtime has a list that others repeat.
type listLocation struct {
	pointer string
	tools   bool // of what tools are asked and answer, not of messages
	single  bool // an element by itself, that others have in a list
}

// elements are what stands in a place, nil if it cannot be taken out.
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

// aside is about what it takes to have a turn that is no message: its entry, its place in
// views.
const aside = 400

// take takes what stands in a place out, if that makes the value smaller.
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
		instead += aside // nobody reads them there: it has to pay
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

// where returns a turn of some content: if there are several, the one that goes on with the
// last piece.
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

// push adds a turn to pieces.
func push(pieces []events.Piece, at position) []events.Piece {
	if k := len(pieces) - 1; k >= 0 && pieces[k].Thread == at.thread && pieces[k].To == at.index {
		pieces[k].To++
		return pieces
	}
	return append(pieces, events.Piece{Thread: at.thread, From: at.index, To: at.index + 1})
}

// saidIn is how many bytes stand in the place of a list: its pieces, and about the same
// again for the entry of a turn that is brought.
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

// find returns the value that a pointer of the table leads to.
func find(top rawjson.Members, pointer string) (events.Raw, bool) {
	names := strings.Split(pointer[1:], "/")
	for _, name := range names[:len(names)-1] {
		if top = top.Object(name); top == nil {
			return nil, false
		}
	}
	return top.Get(names[len(names)-1])
}

// without puts [] in the place of each list, null in that of a single element.
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
