package log

import (
	"context"
	"fmt"
	"sync"

	"github.com/tallylog/tally/events"
)

// lasts keeps the last offsets of subjects if nobody else writes to them. Without it, most of the time of an append to
// several subjects would go to asking the server for them.
type lasts struct {
	mu sync.Mutex // guards of
	of map[string]events.Offset
}

// maxLasts bounds the subjects; about 100 bytes each.
const maxLasts = 1 << 15

func (x *lasts) get(subject string) (events.Offset, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	at, known := x.of[subject]
	return at, known
}

// set notes a subject's last offset as it was in an era. The caller has the subject's turn.
func (x *lasts) set(subject string, at events.Offset, e *era) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e.isOver() { // Recover ends the era before it forgets
		return
	}
	if len(x.of) >= maxLasts {
		clear(x.of) // subjects in use come back soon
	}
	if x.of == nil {
		x.of = make(map[string]events.Offset)
	}
	x.of[subject] = at
}

// drop forgets a subject's last offset.
func (x *lasts) drop(subject string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.of, subject)
}

// forget drops all offsets, so that the server is asked again.
func (x *lasts) forget() {
	x.mu.Lock()
	defer x.mu.Unlock()
	clear(x.of)
}

// lastOf returns the offset of a subject's last record, or 0. The caller has the subject's turn.
func (l *Log) lastOf(ctx context.Context, subject string) (events.Offset, error) {
	if l.alone() {
		if at, known := l.lasts.get(subject); known {
			return at, nil
		}
	}
	e := l.era()
	m, err := l.backend.Last(ctx, subject)
	if err != nil && !isNotFound(err) {
		return 0, fmt.Errorf("append to %s: %w", nameOfNATS(subject), err)
	}
	if l.alone() && err == nil {
		l.lasts.set(subject, m.Offset, e)
	}
	return m.Offset, nil
}
