package log

import (
	"cmp"
	"errors"
	"io"
	"slices"
	"sync"

	"github.com/tallylog/tally/events"
)

// holes are the records that are known to be lost, by offset.
type holes struct {
	mu   sync.Mutex
	list []Hole // never changed in place
}

func (h *holes) find(at events.Offset) (int, bool) {
	return slices.BinarySearchFunc(h.list, at, func(h Hole, at events.Offset) int { return cmp.Compare(h.Offset, at) })
}

// after gives those behind an offset.
func (h *holes) after(at events.Offset) []Hole {
	h.mu.Lock()
	defer h.mu.Unlock()
	i, _ := h.find(at + 1)
	return h.list[i:]
}

// add notes a record that turned out to be lost, and reports whether that is news.
func (h *holes) add(hole Hole) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	i, known := h.find(hole.Offset)
	if known {
		return false
	}
	h.list = slices.Insert(slices.Clip(slices.Clone(h.list)), i, hole)
	return true
}

// lost gives the damage that stands in the place of a record which the backend does
// not have. The server may soon forget that it had it, so it is noted.
func (l *Log) lost(at events.Offset) *events.DamageError {
	if hole := (Hole{Offset: at}); l.holes.add(hole) {
		l.config.Found(hole)
	}
	return &events.DamageError{Offset: at}
}

// withHoles yields what is known to be lost of a filter in its place. What is yielded
// anyway, as a record or as damaged, is left to that. The result is to be called with
// io.EOF at the end.
func (l *Log) withHoles(s stretch, yield func(item, error) bool) func(item, error) bool {
	holes := l.holes.after(s.after)
	return func(it item, err error) bool {
		upto := it.at
		if errors.Is(err, io.EOF) {
			upto = s.upto + 1
		} else if err != nil {
			return yield(it, err)
		}
		for len(holes) > 0 && holes[0].Offset < upto {
			h := holes[0]
			holes = holes[1:]
			if (h.Subject == "" || matches(s.filter, h.Subject)) && !yield(item{at: h.Offset, err: &events.DamageError{Offset: h.Offset}}, nil) {
				return false
			}
		}
		if len(holes) > 0 && holes[0].Offset == it.at {
			holes = holes[1:]
		}
		return errors.Is(err, io.EOF) || yield(it, err)
	}
}
