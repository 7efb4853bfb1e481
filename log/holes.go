package log

import (
	"cmp"
	"errors"
	"io"
	"slices"
	"sync"

	"github.com/tallylog/tally/events"
)

// holes holds the records that are known to be lost.
type holes struct {
	mu    sync.Mutex              // guards the fields below
	known []Hole                  // by offset; the slice is never changed in place, so readers may keep it
	found map[events.Offset]*Hole // found by reads and not yet in known, though the backend may still count them; nil: subject unknown
}

// find returns the index of an offset in known. The caller holds mu.
func (h *holes) find(at events.Offset) (int, bool) {
	return slices.BinarySearchFunc(h.known, at, func(h Hole, at events.Offset) int { return cmp.Compare(h.Offset, at) })
}

// after returns the known holes behind an offset.
func (h *holes) after(at events.Offset) []Hole {
	h.mu.Lock()
	defer h.mu.Unlock()
	i, _ := h.find(at + 1)
	return h.known[i:]
}

// reported returns the known holes behind an offset, with those that Tell has named since.
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

// lose adds to the known holes.
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

// add notes a lost record, and reports whether it was unknown so far.
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

// of reports whether a lost record may match a filter. A hole without a subject may match any.
func (h Hole) of(filter string) bool { return h.Subject == "" || matcher(filter)(h.Subject) }

// Lose makes reads report these records as lost from now on if the backend does not have them any more.
func (l *Log) Lose(records []Hole) { l.holes.lose(records) }

// Tell names the subjects of lost records that reads found, as far as they are known. From then on a read of a subject
// reports the holes that may be its own, even if the backend has forgotten that it ever had them.
func (l *Log) Tell(found []Hole) {
	l.holes.mu.Lock()
	defer l.holes.mu.Unlock()
	for _, f := range found {
		if _, is := l.holes.found[f.Offset]; is {
			l.holes.found[f.Offset] = &f
		}
	}
}

// Holes returns the records that the backend does not have and that are known to be lost.
func (l *Log) Holes() []Hole { return l.holes.after(0) }

// Unreadable returns Holes and the losses that reads have found since. If the subject of a record is unknown, Subject
// is "".
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

// Lost returns the number of records that are known to be lost, whenever they were found. Only a read of the whole log
// finds them all.
func (l *Log) Lost() int {
	l.holes.mu.Lock()
	defer l.holes.mu.Unlock()
	return len(l.holes.known) + len(l.holes.found)
}

// LostBehind reports whether a record of the subject may be lost behind an offset. If so, Last need not return the last
// record that was written.
func (l *Log) LostBehind(sub events.Subject, at events.Offset) bool {
	return l.lastHole(stretch{filter: sub.NATS(), after: at, upto: events.MaxOffset}) > 0
}

// lost returns the damage at the offset of a record which the backend does not have, and notes it: the server may have
// forgotten at its next start that the record ever existed.
func (l *Log) lost(at events.Offset) *events.DamageError {
	if l.holes.add(at) {
		l.config.Host.Found(at)
	}
	return &events.DamageError{Offset: at}
}

// withHoles wraps yield so that it also yields the known holes that match the filter, in their order. It omits holes
// that are yielded anyway, as a record or as damage. The caller calls the result with io.EOF at the end.
func (l *Log) withHoles(s stretch, yield func(item, error) bool) func(item, error) bool {
	lost := l.holes.reported(s.after)
	return func(it item, err error) bool {
		upto := it.at
		if errors.Is(err, io.EOF) {
			upto = s.upto + 1
		} else if err != nil {
			return yield(it, err)
		}
		for len(lost) > 0 && lost[0].Offset < upto {
			h := lost[0]
			lost = lost[1:]
			if h.of(s.filter) && !yield(item{at: h.Offset, err: &events.DamageError{Offset: h.Offset}}, nil) {
				return false
			}
		}
		if len(lost) > 0 && lost[0].Offset == it.at {
			lost = lost[1:]
		}
		return errors.Is(err, io.EOF) || yield(it, err)
	}
}

// lastHole returns the last lost record of a stretch that may match its filter, or 0.
func (l *Log) lastHole(s stretch) events.Offset {
	for _, h := range slices.Backward(l.holes.reported(s.after)) {
		if h.Offset <= s.upto && h.of(s.filter) {
			return h.Offset
		}
	}
	return 0
}
