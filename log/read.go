package log

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"

	"github.com/tallylog/tally/events"
)

// A filtered read is checked in windows of this size, before it is yielded.
const (
	windowRecords = 4096
	windowBytes   = 8 << 20
)

// Read yields the records of a range in the order of their offsets, up to the last
// one there is when the loop begins. Nothing happens before the loop, and nothing
// is left after it.
//
// A record that the log holds but cannot give back is yielded as a
// *events.DamageError in its place, and the read goes on; a read of one subject
// or kind that misses a record names every unreadable offset of the stretch, as
// nobody can tell any more whose those were. Any other error is the last thing
// yielded. A read never ends early in silence.
func (l *Log) Read(ctx context.Context, r events.Range) iter.Seq2[events.Record, error] {
	mustBeRange(r)
	return func(yield func(events.Record, error) bool) {
		filter, upto, err := l.bounds(ctx, r)
		if err != nil {
			yield(events.Record{}, err)
			return
		}
		n := 0
		for it, err := range l.scan(ctx, filter, r.After, upto, r.Limit) {
			if err != nil {
				yield(events.Record{}, fmt.Errorf("log: read: %w", err))
				return
			}
			if it.err == nil {
				n++
			}
			if !yield(it.rec, it.err) || n == r.Limit && n > 0 {
				return
			}
		}
	}
}

func mustBeRange(r events.Range) {
	if r.Limit < 0 {
		panic(fmt.Sprintf("log: a range with the limit %d", r.Limit))
	}
}

// bounds gives a range's filter and its last offset, never beyond the head.
func (l *Log) bounds(ctx context.Context, r events.Range) (string, events.Offset, error) {
	filter, err := filterOf(r)
	if err != nil {
		return "", 0, err
	}
	head, err := l.Head(ctx)
	if err != nil {
		return "", 0, err
	}
	if r.Upto != 0 && r.Upto < head {
		head = r.Upto
	}
	return filter, head, nil
}

// filterOf gives the NATS subjects of a range.
func filterOf(r events.Range) (string, error) {
	if r.Subject != (events.Subject{}) {
		return r.Subject.NATS(), r.Subject.Validate()
	}
	probe := events.Subject{Namespace: "any", Kind: "any", ID: "any"}
	ns, kind := "*", "*"
	if r.Namespace != "" {
		probe.Namespace, ns = r.Namespace, r.Namespace
	}
	if r.Kind != "" {
		probe.Kind, kind = r.Kind, r.Kind
	}
	return "tally.v1.*." + ns + "." + kind + ".*", probe.Validate()
}

// item is a record, or what stands in its place.
type item struct {
	at  events.Offset
	rec events.Record
	err error // *events.DamageError
}

func itemOf(m Message) item {
	rec, err := decode(m)
	return item{at: m.Offset, rec: rec, err: err}
}

// scan yields what a filter finds in (after, upto]. The error ends it.
func (l *Log) scan(ctx context.Context, filter string, after, upto events.Offset, want int) iter.Seq2[item, error] {
	if filter == events.SubjectFilter {
		return l.scanAll(ctx, after, upto, want)
	}
	return l.scanSome(ctx, filter, after, upto, want)
}

// scanAll reads every record: all offsets must be there, so a gap is damage.
func (l *Log) scanAll(ctx context.Context, after, upto events.Offset, want int) iter.Seq2[item, error] {
	return func(yield func(item, error) bool) {
		st, err := l.backend.State(ctx)
		if err != nil {
			yield(item{}, err)
			return
		}
		if st.First > 0 && after < st.First-1 {
			after = st.First - 1
		}
		if after >= upto {
			return
		}
		cur, err := l.backend.Scan(ctx, Query{Filter: events.SubjectFilter, After: after, Upto: upto, Want: want})
		if err != nil {
			yield(item{}, err)
			return
		}
		defer cur.Close()
		for at := after; at < upto; {
			m, err := cur.Next(ctx)
			next := m.Offset
			switch {
			case errors.Is(err, io.EOF):
				next = upto + 1
			case err != nil:
				yield(item{}, err)
				return
			}
			for at++; at < next; at++ {
				if !l.yieldGap(ctx, at, yield) {
					return
				}
			}
			if err == nil && !yield(itemOf(m), nil) {
				return
			}
		}
	}
}

// yieldGap yields the record at an offset that a cursor left out: nearly always
// because it cannot be read.
func (l *Log) yieldGap(ctx context.Context, at events.Offset, yield func(item, error) bool) bool {
	m, err := l.backend.Get(ctx, at)
	switch {
	case err == nil:
		return yield(itemOf(m), nil)
	case isNotFound(err):
		return yield(item{at: at, err: &events.DamageError{Offset: at}}, nil)
	case isDamage(err):
		return yield(item{at: at, err: err}, nil)
	}
	yield(item{}, err)
	return false
}

// scanSome reads the records of a filter and counts them: what the backend's index
// announced must come. Where it does not, the stretch is read whole.
func (l *Log) scanSome(ctx context.Context, filter string, after, upto events.Offset, want int) iter.Seq2[item, error] {
	return func(yield func(item, error) bool) {
		if after >= upto {
			return
		}
		cur, err := l.backend.Scan(ctx, Query{Filter: filter, After: after, Upto: upto, Want: want})
		if err != nil {
			yield(item{}, err)
			return
		}
		defer cur.Close()
		c := counter{l: l, filter: filter, from: after, left: cur.Announced()}
		var window []item
		for end := false; !end; {
			window, end, err = fillWindow(ctx, cur, window[:0], want)
			if err != nil {
				yield(item{}, err)
				return
			}
			last := upto
			if !end {
				last = window[len(window)-1].at
			}
			complete, err := c.check(ctx, last, end, len(window))
			switch {
			case err != nil:
				yield(item{}, err)
				return
			case complete:
				for _, it := range window {
					if !yield(it, nil) {
						return
					}
				}
			case !l.yieldWhole(ctx, filter, c.from, last, yield):
				return
			}
			c.from = last
		}
	}
}

// fillWindow takes the next records of a cursor, as many as may be kept in memory.
func fillWindow(ctx context.Context, cur Cursor, window []item, want int) (_ []item, end bool, err error) {
	most := windowRecords
	if want > 0 {
		most = min(most, want)
	}
	for size := 0; len(window) < most && size < windowBytes; {
		m, err := cur.Next(ctx)
		if errors.Is(err, io.EOF) {
			return window, true, nil
		}
		if err != nil {
			return window, false, err
		}
		window = append(window, itemOf(m))
		size += len(m.Data)
	}
	return window, false, nil
}

// yieldWhole reads every record of a stretch for those of a filter, and for those
// that nobody can tell.
func (l *Log) yieldWhole(ctx context.Context, filter string, after, upto events.Offset, yield func(item, error) bool) bool {
	for it, err := range l.scanAll(ctx, after, upto, 0) {
		if err != nil {
			yield(item{}, err)
			return false
		}
		if it.err == nil && !matches(filter, it.rec.Subject.NATS()) {
			continue
		}
		if !yield(it, nil) {
			return false
		}
	}
	return true
}

// counter compares what came with what the index says.
type counter struct {
	l      *Log
	filter string
	from   events.Offset // what came before was compared
	left   uint64        // at least so many there were after from when the cursor was opened
}

// check reports whether n records are all that the filter has in (from, upto].
//
// Nothing is ever removed, so an index only grows: if as many came as were
// announced in the beginning, none is missing. The exact question, which costs two
// look-ups, is asked only where that does not settle it.
func (c *counter) check(ctx context.Context, upto events.Offset, end bool, n int) (bool, error) {
	if end && uint64(n) == c.left {
		c.left = 0
		return true, nil
	}
	for {
		rest, err := c.count(ctx, upto)
		if err != nil {
			return false, err
		}
		if !end && uint64(n)+rest == c.left {
			c.left = rest
			return true, nil
		}
		all, err := c.count(ctx, c.from)
		if err != nil {
			return false, err
		}
		again, err := c.count(ctx, upto)
		if err != nil {
			return false, err
		}
		if again == rest { // nothing came between: the difference is exact
			c.left = rest
			return all-rest == uint64(n), nil
		}
	}
}

// count asks how many records of the filter there are after an offset.
func (c *counter) count(ctx context.Context, after events.Offset) (uint64, error) {
	cur, err := c.l.backend.Scan(ctx, Query{Filter: c.filter, After: after, Upto: after, Want: 1})
	if err != nil {
		return 0, err
	}
	defer cur.Close()
	return cur.Announced(), nil
}

// matches reports whether a literal NATS subject is one of a filter's.
func matches(filter, subject string) bool {
	want, have := strings.Split(filter, "."), strings.Split(subject, ".")
	return slices.EqualFunc(want, have, func(w, h string) bool { return w == "*" || w == h })
}
