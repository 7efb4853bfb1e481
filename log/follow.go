package log

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/tallylog/tally/events"
)

// Follow yields the records of a range, then new ones as they are appended, in the order of their offsets, without gap
// or repeat. It survives lost connections. It ends without an error when ctx is done, and after Upto or Limit. Damage
// is yielded as in Read. An error that waiting cannot cure is yielded last: an *events.InvalidError, or ErrUnavailable
// when the log is closed or, for a log that appends through an owner, when the owner has ended.
func (l *Log) Follow(ctx context.Context, r events.Range) iter.Seq2[events.Record, error] {
	mustBeRange(r)
	return func(yield func(events.Record, error) bool) {
		if _, err := filterOf(r); err != nil {
			yield(events.Record{}, err)
			return
		}
		f := follower{l: l, r: r, yield: yield}
		for try := 0; ; try++ {
			before := f.r.After
			err := f.catchUp(ctx)
			if err == nil && !f.over {
				err = f.live(ctx)
			}
			switch {
			case f.over || ctx.Err() != nil:
				return
			case l.isClosed():
				yield(events.Record{}, l.errClosed("follow"))
				return
			case l.owner != nil && l.owner.lost.Err() != nil:
				yield(events.Record{}, fmt.Errorf("log: follow: %w", errOwnerLost))
				return
			}
			if f.r.After != before {
				try = 0
			}
			l.config.Logger.Debug("follow starts again", "after", f.r.After, "error", fmt.Sprint(err))
			select {
			case <-time.After(min(10*time.Millisecond<<min(try, 7), time.Second)):
			case <-ctx.Done(): // the switch above returns
			case <-l.life.Done():
			}
		}
	}
}

// follower is a Follow under way. r.After is the offset of the last record that it yielded.
type follower struct {
	l     *Log
	r     events.Range
	n     int
	yield func(events.Record, error) bool
	over  bool // yield nothing more
}

func (f *follower) give(it item) {
	f.r.After, f.r.Known = it.at, 0
	if it.err == nil {
		f.n++
	}
	f.over = !f.yield(it.rec, it.err) || f.r.Limit > 0 && f.n == f.r.Limit || f.r.Upto > 0 && it.at >= f.r.Upto
}

// catchUp reads to the head, with all the checks of a read.
func (f *follower) catchUp(ctx context.Context) error {
	s, err := f.l.stretchOf(ctx, f.r)
	if err != nil {
		return err
	}
	for it, err := range f.l.scan(ctx, s) {
		if err != nil {
			return err
		}
		if f.give(it); f.over {
			return nil
		}
	}
	f.r.After, f.r.Known = max(f.r.After, s.upto), 0
	f.over = f.r.Upto > 0 && f.r.After >= f.r.Upto
	return nil
}

// live yields new records until the cursor ends.
func (f *follower) live(ctx context.Context) error {
	filter, _ := filterOf(f.r)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(f.l.life, cancel)()
	e := f.l.era()
	cur, err := f.l.backend.Scan(ctx, Query{Filter: filter, After: f.r.After, Live: true, Want: f.r.Limit})
	if err != nil {
		return err
	}
	defer cur.Close()
	for {
		m, err := cur.Next(ctx)
		if err != nil {
			return err
		}
		if m.Offset <= f.r.After {
			continue
		}
		if f.r.Upto > 0 && m.Offset > f.r.Upto {
			f.over = true
			return nil
		}
		if filter == events.SubjectFilter && m.Offset != f.r.After+1 {
			return fmt.Errorf("offset %v came after %v", m.Offset, f.r.After) // catchUp will find the reason
		}
		if !f.r.Buffered {
			if err := f.l.followSafe(ctx, m.Offset, e); err != nil {
				return err
			}
		}
		if f.give(itemOf(m)); f.over {
			return nil
		}
	}
}
