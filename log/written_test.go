package log

import (
	"fmt"
	"testing"

	"github.com/tallylog/tally/events"
)

// The collected messages of a segment make its index only if they are all of its messages.
func TestWrittenIsAllOrNothing(t *testing.T) {
	one := Publication{Writes: []Write{{Subject: "a", Messages: []Outgoing{{ID: "1"}}}}}
	two := Publication{Writes: []Write{{Subject: "b", Messages: []Outgoing{{ID: "2"}, {ID: "3"}}}}}
	stored := func(last events.Offset) Receipt { return Receipt{Last: last} }
	for name, c := range map[string]struct {
		note     func(*segment)
		messages uint64 // that the server has
		known    bool
	}{
		"all":                         {func(s *segment) { s.note(two, stored(3), nil); s.note(one, stored(1), nil) }, 3, true},
		"one more":                    {func(s *segment) { s.note(one, stored(1), nil) }, 2, false},
		"a duplicate":                 {func(s *segment) { s.note(one, stored(1), nil); s.note(one, Receipt{Last: 1, Duplicate: true}, nil) }, 1, true},
		"refused":                     {func(s *segment) { s.note(one, Receipt{}, ErrBusy); s.note(one, stored(1), nil) }, 1, true},
		"outcome unknown":             {func(s *segment) { s.note(one, Receipt{}, fmt.Errorf("x: %w", ErrUnknown)); s.note(two, stored(2), nil) }, 2, false},
		"another process's beginning": {func(s *segment) { s.written.Store(nil); s.note(one, stored(2), nil) }, 1, false},
		"too much": {func(s *segment) {
			for i := range events.Offset(maxWritten/writtenSubject + 1) {
				s.note(Publication{Writes: []Write{{Subject: fmt.Sprint(i), Messages: one.Writes[0].Messages}}}, stored(i+1), nil)
			}
		}, maxWritten/writtenSubject + 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := new(segment)
			s.written.Store(newWritten())
			c.note(s)
			if got := s.wrote(c.messages) != nil; got != c.known {
				t.Errorf("segment has an index: %v, want %v", got, c.known)
			}
		})
	}
}
