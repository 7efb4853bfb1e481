package write

import (
	"context"
	"iter"
	"sync"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/ingest"
	"github.com/tallylog/tally/log"
)

// rehearsal is a log to which nothing is appended: what would be stands behind its end for
// who reads it here, in memory.
type rehearsal struct {
	ingest.Log
	mu    sync.Mutex // guards the rest: several sessions are read at once
	added map[events.Subject][]events.Record
	at    map[events.Offset]events.Record
	last  events.Offset
}

// behind is where the offsets begin that a rehearsal gives: no log has so many records.
const behind events.Offset = 1 << 52

// AppendSeries implements ingest.Log.
func (l *rehearsal) AppendSeries(_ context.Context, sub events.Subject, _ log.Expect, evs ...events.Event) (log.Ack, int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.at == nil {
		l.at, l.last = make(map[events.Offset]events.Record), behind
	}
	ack := log.Ack{First: l.last + 1}
	for _, e := range evs {
		l.last++
		rec := events.Record{Event: e, Offset: l.last, Recorded: l.Now()}
		l.at[l.last] = rec
		l.added[sub] = append(l.added[sub], rec)
	}
	ack.Last = l.last
	return ack, len(evs), nil
}

// Read implements ingest.Log.
func (l *rehearsal) Read(ctx context.Context, r events.Range) iter.Seq2[events.Record, error] {
	return func(yield func(events.Record, error) bool) {
		if r.After < behind {
			for rec, err := range l.Log.Read(ctx, r) {
				if !yield(rec, err) {
					return
				}
			}
		}
		for _, rec := range l.of(r.Subject) {
			if rec.Offset > r.After && (r.Upto == 0 || rec.Offset <= r.Upto) && !yield(rec, nil) {
				return
			}
		}
	}
}

// of returns what would be appended to a subject.
func (l *rehearsal) of(sub events.Subject) []events.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.added[sub]
}

// Last implements ingest.Log.
func (l *rehearsal) Last(ctx context.Context, sub events.Subject) (events.Record, error) {
	if added := l.of(sub); len(added) > 0 {
		return added[len(added)-1], nil
	}
	return l.Log.Last(ctx, sub)
}

// Record implements ingest.Log.
func (l *rehearsal) Record(ctx context.Context, at events.Offset) (events.Record, error) {
	l.mu.Lock()
	rec, ok := l.at[at]
	l.mu.Unlock()
	if ok {
		return rec, nil
	}
	return l.Log.Record(ctx, at)
}
