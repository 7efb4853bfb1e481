package events

import (
	"fmt"
	"slices"

	"github.com/tallylog/tally/internal/rawjson"
)

// Lists name the arrays of a payload's raw value whose elements are turns of the session, so that they need not be
// stored again. A key is a JSON pointer (RFC 6901) into raw, for run.finished into result. The stored value has []
// there; the array consists of the turns of all pieces, in order, as the threads are at the record. If the stored value
// has null, it is a single turn instead of an array.
type Lists map[string][]Piece

// Piece is a stretch of turns of a thread, by index from 0: from From to before To.
type Piece struct {
	Thread string `json:"thread"`
	From   int    `json:"from,omitempty"`
	To     int    `json:"to"`
}

// AppendRawJSON writes a list of no pieces as [], which is how it is read.
func (l Lists) AppendRawJSON(dst []byte) ([]byte, error) {
	plain := make(map[string][]Piece, len(l))
	for pointer, pieces := range l {
		plain[pointer] = append([]Piece{}, pieces...)
	}
	return rawjson.Append(dst, plain)
}

// ListsOf returns the lists of a payload, or nil.
func ListsOf(p Payload) Lists {
	switch p := p.(type) {
	case *RunStarted:
		return p.Lists
	case *RunProgressed:
		return p.Lists
	case *RunFinished:
		return p.Lists
	case *CheckpointSaved:
		return p.Lists
	}
	return nil
}

func (l Lists) check(raw Raw) error {
	if err := l.checkBounds(); err != nil {
		return err
	}
	for _, pointer := range sortedKeys(l) {
		path := fmt.Sprintf("lists[%q]", pointer)
		from, to, err := rawjson.Locate(raw, pointer)
		if err != nil {
			return wrong(path, "%v", err)
		}
		if at := string(raw[from:to]); at != "[]" && at != "null" {
			return wrong(path, "%.40s stands there, not [] or null", at)
		} else if at == "null" && turnsIn(l[pointer]) != 1 {
			return wrong(path, "null stands there for %d turns, not for one", turnsIn(l[pointer]))
		}
		for i, p := range l[pointer] {
			at := fmt.Sprintf("%s[%d]", path, i)
			if err := checkThread(at+".thread", p.Thread); err != nil {
				return err
			}
			if p.From < 0 || p.To < p.From {
				return wrong(at, "[%d, %d] is no stretch of turns", p.From, p.To)
			}
		}
	}
	return nil
}

// checkBounds refuses lists that refer to too much.
func (l Lists) checkBounds() error {
	if len(l) > MaxPointers {
		return wrong("lists", "%d lists, at most %d are allowed in one event", len(l), MaxPointers)
	}
	pieces, turns := 0, 0
	for _, pointer := range sortedKeys(l) {
		pieces += len(l[pointer])
		for i, p := range l[pointer] {
			if err := checkTurns(fmt.Sprintf("lists[%q][%d].to", pointer, i), p.To); err != nil {
				return err
			}
			turns += max(p.To-p.From, 0)
		}
	}
	if turns > MaxListed {
		return wrong("lists", "they name turns %d times, at most %d times are allowed in one event", turns, MaxListed)
	}
	return checkReferences("lists", pieces)
}

func turnsIn(pieces []Piece) (n int) {
	for _, p := range pieces {
		n += p.To - p.From
	}
	return n
}

// pieceTurns is how many turns Fill requests at once, so that it notices in time that the value is too large.
const pieceTurns = 256

// Fill returns the raw value with all its arrays filled. turns returns the turns of a piece; Fill may ask for a part of
// a piece. If the value exceeds limit bytes, Fill returns an error.
func (l Lists) Fill(raw Raw, limit int64, turns func(Piece) ([]Raw, error)) (Raw, error) {
	positions, err := l.positions(raw)
	if err != nil {
		return nil, err
	}
	f := filling{limit: limit, room: limit - int64(len(raw)), turns: turns}
	done := 0
	for _, at := range positions {
		f.whole = append(f.whole, raw[done:at.from]...)
		done = at.to
		if err := f.list(l[at.pointer], raw[at.from] == '['); err != nil {
			return nil, err
		}
		if raw[at.from] != '[' && f.count != 1 {
			return nil, wrong(fmt.Sprintf("lists[%q]", at.pointer), "%d turns in the place of one", f.count)
		}
	}
	return append(f.whole, raw[done:]...), nil
}

// listPosition is the position of a pointer's value.
type listPosition struct {
	from, to int
	pointer  string
}

// positions locates all lists, in their order in the raw value.
func (l Lists) positions(raw Raw) ([]listPosition, error) {
	var list []listPosition
	for _, pointer := range sortedKeys(l) {
		from, to, err := rawjson.Locate(raw, pointer)
		if err != nil {
			return nil, wrong(fmt.Sprintf("lists[%q]", pointer), "%v", err)
		}
		list = append(list, listPosition{from, to, pointer})
	}
	slices.SortFunc(list, func(a, b listPosition) int { return a.from - b.from })
	return list, nil
}

// filling is one call of Fill.
type filling struct {
	whole Raw
	limit int64
	room  int64 // bytes that may still be added
	count int   // turns of the current list
	turns func(Piece) ([]Raw, error)
}

// list adds the turns of all pieces, as an array or as a single value.
func (f *filling) list(pieces []Piece, array bool) error {
	f.count = 0
	if array {
		f.whole = append(f.whole, '[')
	}
	for _, p := range pieces {
		for from := p.From; from < p.To; from += pieceTurns {
			more, err := f.turns(Piece{p.Thread, from, min(p.To, from+pieceTurns)})
			if err == nil {
				err = f.add(more)
			}
			if err != nil {
				return err
			}
		}
	}
	if array {
		f.whole = append(f.whole, ']')
	}
	return nil
}

func (f *filling) add(turns []Raw) error {
	for _, raw := range turns {
		if f.count++; f.count > 1 {
			f.whole = append(f.whole, ',')
		}
		if f.room -= int64(len(raw)) + 1; f.room < 0 {
			return wrong("lists", "the value has more than %d bytes with its turns in place", f.limit)
		}
		f.whole = append(f.whole, raw...)
	}
	return nil
}
