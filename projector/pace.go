package projector

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"github.com/tallylog/tally/events"
)

// Pace lets a view leave the machine to producers. When there is something to read, the view first rests until the log
// was quiet for a moment, but at most for the Pace. Then it reads all new records at once. A reader that waits for the
// view ends the rest.
//
// With the zero Pace, a view reads each record as it arrives. It rests only while a large series is appended (see
// bulk), or briefly if thousands of records arrive in a second.
type Pace time.Duration

// Patient is the pace of views that may lag a little.
const Patient = Pace(time.Second)

const (
	seriesPace = Pace(100 * time.Millisecond) // pace of every view while a large series is appended
	short      = Pace(20 * time.Millisecond)  // pace of every view while many records arrive
	quiet      = 50 * time.Millisecond        // after this time without a record, no view rests

	many      = 2000                   // records a second
	manyCount = 100 * time.Millisecond // measured over at least this time

	manyCostly = 200 // records a second, for a costly view
	costlyRest = 8   // a costly view rests for this many times its last working time
)

// bulk is a Follower that reports whether this process is appending a large series of records, such as an import. An
// import gets the whole machine for a moment.
type bulk interface {
	Bulk() bool
}

// now returns the current pace.
func (p Pace) now(l Follower) Pace {
	r, isRapid := l.(*rapids)
	if isRapid {
		l = r.Follower
	}
	if b, ok := l.(bulk); ok && b.Bulk() {
		return max(p, seriesPace)
	}
	if isRapid && r.many() {
		return max(p, short, r.toll())
	}
	return p
}

// rapids wraps a log and measures how fast a view advances. If many records arrive, the view should read many at once:
// subjects that change several times between two commits are then stored once. It is safe for concurrent use.
type rapids struct {
	Follower
	costly bool // see Runner

	mu    sync.Mutex
	took  time.Duration // duration of the last update
	last  events.Offset // position of the view
	at    time.Time     // when the view was at last
	until time.Time     // many records are assumed to arrive until then
}

// came notes that the view has reached an offset.
func (r *rapids) came(to events.Offset) {
	r.mu.Lock()
	defer r.mu.Unlock()
	took := time.Since(r.at)
	if took < manyCount {
		return
	}
	limit := float64(many)
	if r.costly {
		limit = manyCostly
	}
	if to > r.last && float64(to-r.last) > limit*took.Seconds() {
		r.until = time.Now().Add(2 * manyCount)
	}
	r.last, r.at = to, time.Now()
}

// shown notes how long the view took to apply new records.
func (r *rapids) shown(took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.took = took
}

// toll returns how long a costly view rests while many records arrive.
func (r *rapids) toll() Pace {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.costly {
		return 0
	}
	return min(Pace(costlyRest*r.took), Patient)
}

func (r *rapids) many() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Now().Before(r.until)
}

// reading is the Read or the Follow method of a log.
type reading func(context.Context, events.Range) iter.Seq2[events.Record, error]

// follow is Follow, but ends before the first record that the view should rest for.
func (p Pace) follow(l Follower) reading {
	return func(ctx context.Context, r events.Range) iter.Seq2[events.Record, error] {
		return func(yield func(events.Record, error) bool) {
			for rec, err := range l.Follow(ctx, r) {
				if err == nil && p.now(l) > 0 || !yield(rec, err) {
					return
				}
			}
			if ctx.Err() == nil {
				yield(events.Record{}, errors.New("projector: the log's follow ended"))
			}
		}
	}
}

// await returns when there is a record after an offset and the view has rested.
func (p Pace) await(ctx context.Context, l Follower, after events.Offset) error {
	for _, err := range events.Readable(p.follow(l)(ctx, events.Range{After: after})) {
		if err != nil {
			return err
		}
		break
	}
	p.rest(ctx, l, nil)
	return ctx.Err()
}

// rest returns when the view has rested, hurried is closed, or ctx is done. If the log's head cannot be read, rest
// returns at once.
func (p Pace) rest(ctx context.Context, l Follower, hurried <-chan struct{}) {
	ctx, stop := context.WithTimeout(ctx, time.Duration(p.now(l)))
	defer stop()
	tick := time.NewTicker(quiet)
	defer tick.Stop()
	before, err := l.Head(ctx)
	for err == nil {
		select {
		case <-tick.C:
		case <-hurried:
			return
		case <-ctx.Done():
			return
		}
		head := before
		if before, err = l.Head(ctx); head == before {
			return
		}
	}
}
