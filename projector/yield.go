package projector

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"time"

	"github.com/tallylog/tally/events"
)

// Yield is how a view that may be a little behind leaves the machine to those who
// append: it sleeps while they do, and reads what came in one go when they pause. The
// zero Yield does not: the view reads each record as it comes, and only stands aside for
// a moment while a large series is appended (see Bulk).
type Yield struct {
	Quiet   time.Duration // the log is quiet when nothing was appended for so long; 0: the view does not yield
	Age     time.Duration // most time between a record and the moment at which the view begins to read; default 1 s
	Records uint64        // most records that the view lets come before it begins to read; default 10,000
}

// PatientYield is for views that may be a little behind: a call of Wait ends it at once.
var PatientYield = Yield{Quiet: 50 * time.Millisecond}

func (y Yield) withDefaults() Yield {
	y.Age = cmp.Or(y.Age, time.Second)
	y.Records = cmp.Or(y.Records, 10_000)
	return y
}

// follow is Follow in bursts. hurried, if not nil, returns what is closed when somebody
// waits for the records.
func (y Yield) follow(l Follower, hurried func() <-chan struct{}) reading {
	if hurried == nil {
		hurried = func() <-chan struct{} { return nil }
	}
	if y.Quiet <= 0 {
		return attend(l, hurried)
	}
	y = y.withDefaults()
	return func(ctx context.Context, r events.Range) iter.Seq2[events.Record, error] {
		return func(yield func(events.Record, error) bool) {
			for {
				first, err := next(ctx, l, r)
				if ctx.Err() != nil {
					return
				}
				if err == nil {
					err = y.lull(ctx, l, r.After, hurried)
				}
				if ctx.Err() != nil {
					return
				}
				if err != nil {
					yield(events.Record{}, err)
					return
				}
				for rec, err := range l.Read(ctx, r) {
					at, known := placeOf(rec, err)
					if !yield(rec, err) || !known {
						return
					}
					r.After = max(r.After, at)
				}
				r.After = max(r.After, first)
			}
		}
	}
}

// start returns when a view that yields is to begin: a program that opens a log mostly
// has something to append, and goes first.
func (y Yield) start(ctx context.Context, hurried func() <-chan struct{}) {
	if y.Quiet <= 0 {
		return
	}
	timer := time.NewTimer(y.Quiet)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-hurried():
	case <-ctx.Done():
	}
}

// placeOf returns the offset of what a read yielded: a record, or damage in its place.
func placeOf(rec events.Record, err error) (at events.Offset, known bool) {
	if damage, ok := errors.AsType[*events.DamageError](err); ok {
		return damage.Offset, true
	}
	return rec.Offset, err == nil
}

// next returns when a range has a record, and says where.
func next(ctx context.Context, l Follower, r events.Range) (events.Offset, error) {
	r.Limit = 1
	for rec, err := range l.Follow(ctx, r) {
		at, known := placeOf(rec, err)
		if known {
			err = nil
		}
		return at, err
	}
	return 0, errors.New("projector: the log's follow ended")
}

// lull returns when the log is quiet, when it is not and the view is behind as far as
// it may be, or when somebody waits. The view has got to an offset.
func (y Yield) lull(ctx context.Context, l Follower, reached events.Offset, hurried func() <-chan struct{}) error {
	begun := time.Now()
	before := reached
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-hurried():
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
		head, err := l.Head(ctx)
		if err != nil {
			return err
		}
		waited := time.Since(begun)
		if head == before || uint64(head-reached) >= y.Records || waited >= y.Age {
			return nil
		}
		before = head
		timer.Reset(min(y.Quiet, y.Age-waited))
	}
}
