package projector

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"github.com/tallylog/tally/events"
)

// Pace is how a view leaves the machine to those who append: once there is something to
// read it rests until nothing was appended for a moment, and for so long at the most;
// then it reads what has come, all at once. Whoever waits for the view ends the rest.
//
// With the zero Pace a view reads each record as it comes, and rests only while a large
// series is appended (see bulk), or shortly if thousands of records come in a second.
type Pace time.Duration

// Patient is for views that may be a little behind.
const Patient = Pace(time.Second)

const (
	aside = Pace(100 * time.Millisecond) // of every view while a large series is appended
	short = Pace(20 * time.Millisecond)  // of every view while many records come
	quiet = 50 * time.Millisecond        // without another record, after which no view rests

	many      = 2000                   // records a second
	manyCount = 100 * time.Millisecond // over so long at least

	manyCostly = 200 // records a second, of a view that is costly
	costlyRest = 8   // times as long as it took such a view to show what came, it rests then
)

// bulk is a Follower that knows whether large series are being appended to the log by this
// process: an import, which wants the whole machine for a moment.
type bulk interface {
	Bulk() bool
}

// now is the pace at this moment.
func (p Pace) now(l Follower) Pace {
	r, isRapid := l.(*rapids)
	if isRapid {
		l = r.Follower
	}
	if b, ok := l.(bulk); ok && b.Bulk() {
		return max(p, aside)
	}
	if isRapid && r.many() {
		return max(p, short, r.toll())
	}
	return p
}

// rapids is a log of which a view says how far it has come. If that is far in little time,
// the view had better read many records at once: subjects change several times between two
// commits then, and are stored once. It is safe for concurrent use.
type rapids struct {
	Follower
	costly bool // see Runner

	mu    sync.Mutex
	took  time.Duration // to show what came
	last  events.Offset // where the view was
	at    time.Time     // at this time
	until time.Time     // so long there are taken to be many
}

// came says that the view has come to an offset.
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

// shown says how long it took the view to show what had come.
func (r *rapids) shown(took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.took = took
}

// toll is how long a costly view rests while many records come.
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

// reading is Read or Follow.
type reading func(context.Context, events.Range) iter.Seq2[events.Record, error]

// follow is Follow up to the first record before which the view is to rest.
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

// rest returns when the view has rested, hurried is closed, or ctx is done. A log whose
// head is not to be had is not rested for.
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
