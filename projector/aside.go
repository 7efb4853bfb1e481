package projector

import (
	"context"
	"iter"
	"time"

	"github.com/tallylog/tally/events"
)

// Bulk is a Follower that knows when large series are appended to the log by this
// process: an import, which wants the whole machine for a moment. A view that does not
// yield otherwise stands aside then, but for those who wait for it.
type Bulk interface {
	// Bulk returns what is closed while such a series is appended, and what is closed while
	// none is. Both are of the moment of the call.
	Bulk() (begun, over <-chan struct{})
}

const (
	asideQuiet = 20 * time.Millisecond  // without a large series, after which a view goes on
	asideMost  = 100 * time.Millisecond // that a view stands aside before it reads what has come
)

// attend is Follow that stands aside for large series. hurried returns what is closed
// when somebody waits for the records.
func attend(l Follower, hurried func() <-chan struct{}) reading {
	b, ok := l.(Bulk)
	if !ok {
		return l.Follow
	}
	return func(ctx context.Context, r events.Range) iter.Seq2[events.Record, error] {
		return func(yield func(events.Record, error) bool) {
			take := func(records iter.Seq2[events.Record, error]) (more bool) {
				for rec, err := range records {
					at, known := placeOf(rec, err)
					if !yield(rec, err) || !known {
						return false
					}
					r.After = max(r.After, at)
				}
				return ctx.Err() == nil && (r.Upto == 0 || r.After < r.Upto)
			}
			for {
				live, cancel := context.WithCancel(ctx)
				go func() {
					awaitBulk(live, b, hurried)
					cancel()
				}()
				more := take(l.Follow(live, r))
				aside := live.Err() != nil // else the follow ended by itself
				cancel()
				if !more || !aside {
					return
				}
				standAside(ctx, b, hurried)
				if !take(l.Read(ctx, r)) {
					return
				}
			}
		}
	}
}

// awaitBulk returns when a large series is being appended and nobody waits, or when
// ctx is done.
func awaitBulk(ctx context.Context, b Bulk, hurried func() <-chan struct{}) {
	for {
		begun, _ := b.Bulk()
		select {
		case <-begun:
		case <-ctx.Done():
			return
		}
		if !isClosed(hurried()) {
			return
		}
		sleep(ctx, asideQuiet)
	}
}

// standAside returns when no large series has been appended for a moment, when it has
// waited for as long as it may, or when somebody waits.
func standAside(ctx context.Context, b Bulk, hurried func() <-chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, asideMost)
	defer cancel()
	for ctx.Err() == nil {
		_, over := b.Bulk()
		select {
		case <-over:
		case <-hurried():
			return
		case <-ctx.Done():
			return
		}
		begun, _ := b.Bulk()
		timer := time.NewTimer(asideQuiet)
		select {
		case <-begun:
			timer.Stop()
		case <-timer.C:
			return
		case <-hurried():
			timer.Stop()
			return
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// isClosed reports whether a channel, on which nothing is sent, is closed.
func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
