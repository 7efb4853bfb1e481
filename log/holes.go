package log

import (
	"cmp"
	"errors"
	"io"
	"slices"
	"sync"

	"github.com/tallylog/tally/events"
)

// holes are the records that are known to be lost.
type holes struct {
	mu    sync.Mutex              // guards what follows
	known []Hole                  // by offset; what a reader holds of it does not change
	found map[events.Offset]*Hole // and not known, though the backend may count them still; nil: nobody said whose it was
}

// find returns the place of an offset among the known ones. The caller holds mu.
func (h *holes) find(at events.Offset) (int, bool) {
	return slices.BinarySearchFunc(h.known, at, func(h Hole, at events.Offset) int { return cmp.Compare(h.Offset, at) })
}

// after returns the known ones behind an offset.
func (h *holes) after(at events.Offset) []Hole {
	h.mu.Lock()
	defer h.mu.Unlock()
	i, _ := h.find(at + 1)
	return h.known[i:]
}

// reported gives the known ones behind an offset, and those that were told of since.
func (h *holes) reported(at events.Offset) []Hole {
	h.mu.Lock()
	defer h.mu.Unlock()
	i, _ := h.find(at + 1)
	if len(h.found) == 0 {
		return h.known[i:]
	}
	list := slices.Clone(h.known[i:])
	for _, told := range h.found {
		if told != nil && told.Offset > at {
			list = append(list, *told)
		}
	}
	slices.SortFunc(list, byOffset)
	return list
}

func byOffset(a, b Hole) int { return cmp.Compare(a.Offset, b.Offset) }

// lose adds to the known ones.
func (h *holes) lose(more []Hole) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := slices.Concat(h.known, more)
	slices.SortStableFunc(all, byOffset)
	h.known = slices.CompactFunc(all, func(a, b Hole) bool { return a.Offset == b.Offset })
	for _, m := range more {
		delete(h.found, m.Offset)
	}
}

// add notes a record that turned out to be lost, and reports whether that is news.
func (h *holes) add(at events.Offset) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, known := h.find(at)
	if _, found := h.found[at]; known || found {
		return false
	}
	if h.found == nil {
		h.found = make(map[events.Offset]*Hole)
	}
	h.found[at] = nil
	return true
}

// has reports whether a record is known to be lost.
func (h *holes) has(at events.Offset) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, known := h.find(at)
	return known
}

// of reports whether a lost record may have been of a filter: nobody knows whose
// one without subject was.
func (h Hole) of(filter string) bool { return h.Subject == "" || matcher(filter)(h.Subject) }

// Lose makes reads report these records as lost from now on, where the backend does not
// have them any more.
func (l *Log) Lose(records []Hole) { l.holes.lose(records) }

// Tell says whose the records were that reads found to be lost, as far as that is still
// known: from then on a read of a subject reports those that may have been its own,
// whether or not the backend knows that it ever had them.
func (l *Log) Tell(found []Hole) {
	l.holes.mu.Lock()
	defer l.holes.mu.Unlock()
	for _, f := range found {
		if _, is := l.holes.found[f.Offset]; is {
			l.holes.found[f.Offset] = &f
		}
	}
}

// Holes are the records that the backend does not have and that are known to be lost.
func (l *Log) Holes() []Hole { return l.holes.after(0) }

// Unreadable returns Holes and what reads found since. Whose a record was is not known of one
// without a subject.
func (l *Log) Unreadable() []Hole {
	l.holes.mu.Lock()
	defer l.holes.mu.Unlock()
	list := slices.Clone(l.holes.known)
	for at, told := range l.holes.found {
		if told == nil {
			told = &Hole{Offset: at}
		}
		list = append(list, *told)
	}
	slices.SortFunc(list, byOffset)
	return list
}

// Lost is the number of records that are known to be lost, whenever they were.
// Reading everything finds the others.
func (l *Log) Lost() int {
	l.holes.mu.Lock()
	defer l.holes.mu.Unlock()
	return len(l.holes.known) + len(l.holes.found)
}

// LostBehind reports whether a record behind an offset is known to be lost that may have
// been one of a subject: then Last need not be the last there was.
func (l *Log) LostBehind(sub events.Subject, at events.Offset) bool {
	return l.lastHole(stretch{filter: sub.NATS(), after: at, upto: events.MaxOffset}) > 0
}

// lost returns the damage that stands in the place of a record which the backend does
// not have. The server may forget at its next start that it had it, so it is noted.
func (l *Log) lost(at events.Offset) *events.DamageError {
	if l.holes.add(at) {
		l.config.Host.Found(at)
	}
	return &events.DamageError{Offset: at}
}

// withHoles yields what is known to be lost of a filter in its place. What is yielded
// anyway, as a record or as damaged, is left to that. The result is to be called with
// io.EOF at the end.
func (l *Log) withHoles(s stretch, yield func(item, error) bool) func(item, error) bool {
	holes := l.holes.reported(s.after)
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
			if h.of(s.filter) && !yield(item{at: h.Offset, err: &events.DamageError{Offset: h.Offset}}, nil) {
				return false
			}
		}
		if len(holes) > 0 && holes[0].Offset == it.at {
			holes = holes[1:]
		}
		return errors.Is(err, io.EOF) || yield(it, err)
	}
}

// lastHole gives the last lost record of a stretch that may have been of its filter, 0 if
// there is none.
func (l *Log) lastHole(s stretch) events.Offset {
	for _, h := range slices.Backward(l.holes.reported(s.after)) {
		if h.Offset <= s.upto && h.of(s.filter) {
			return h.Offset
		}
	}
	return 0
}
