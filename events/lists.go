package events

import (
	"fmt"
	"slices"

	"github.com/tallylog/tally/internal/rawjson"
)

// Lists say which arrays of a payload's raw value are turns that the session has already,
// so that they need not be stored again. A name is a JSON pointer (RFC 6901) into raw, of
// run.finished into result. In its place there stands [], and the array is the turns of
// all pieces, one piece after the other, as the threads are at the record. Where null
// stands it is no array: it is one turn.
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

// ListsOf returns the lists of a payload, nil if it has none.
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

func turnsIn(pieces []Piece) (n int) {
	for _, p := range pieces {
		n += p.To - p.From
	}
	return n
}

// Fill returns the raw value with all its arrays put together. turns returns those of a
// piece.
func (l Lists) Fill(raw Raw, turns func(Piece) ([]Raw, error)) (Raw, error) {
	type place struct {
		from, to int
		pointer  string
	}
	var places []place
	for _, pointer := range sortedKeys(l) {
		from, to, err := rawjson.Locate(raw, pointer)
		if err != nil {
			return nil, wrong(fmt.Sprintf("lists[%q]", pointer), "%v", err)
		}
		places = append(places, place{from, to, pointer})
	}
	slices.SortFunc(places, func(a, b place) int { return a.from - b.from })
	var whole Raw
	done := 0
	for _, at := range places {
		var list []Raw
		for _, p := range l[at.pointer] {
			more, err := turns(p)
			if err != nil {
				return nil, err
			}
			list = append(list, more...)
		}
		whole = append(whole, raw[done:at.from]...)
		if done = at.to; raw[at.from] == '[' {
			whole = rawjson.AppendArray(whole, list)
			continue
		}
		if len(list) != 1 {
			return nil, wrong(fmt.Sprintf("lists[%q]", at.pointer), "%d turns in the place of one", len(list))
		}
		whole = append(whole, list[0]...)
	}
	return append(whole, raw[done:]...), nil
}
