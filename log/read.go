package log

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"

	"github.com/tallylog/tally/events"
)

// A filtered read is checked in windows of this size, before it is yielded.
const (
	windowRecords = 4096
	windowBytes   = 8 << 20
)

// Read yields the records of a range in the order of their offsets, up to the last durable one when the loop begins, or
// with Range.Buffered the last one. It does nothing before the loop begins, and keeps nothing after the loop.
//
// A record that the log holds but cannot return is yielded as a *events.DamageError at its position, and the read
// continues. If a read of one subject or kind misses a record, it yields every unreadable offset of the stretch,
// because the subjects of those records are unknown. Any other error is yielded last. A read never ends early without
// an error.
//
// A read of one subject or kind checks how many records it gets. A server counts by its index from the beginning of the
// log on, or from the beginning of one of its blocks; behind an offset inside a block its count omits lost records.
// There, a read notices a lost record that is not known yet only if Range.Known says how many records of the subject
// come before.
func (l *Log) Read(ctx context.Context, r events.Range) iter.Seq2[events.Record, error] {
	return l.readBy(ctx, r, "read", l.scan)
}

// readBy yields the records of a range in the order in which items yields a stretch.
func (l *Log) readBy(ctx context.Context, r events.Range, verb string, items func(context.Context, stretch) iter.Seq2[item, error]) iter.Seq2[events.Record, error] {
	mustBeRange(r)
	return func(yield func(events.Record, error) bool) {
		s, err := l.stretchOf(ctx, r)
		if err != nil {
			yield(events.Record{}, err)
			return
		}
		n := 0
		defer func() { l.took.Add(int64(n)) }()
		for it, err := range items(ctx, s) {
			if err != nil {
				yield(events.Record{}, fmt.Errorf("log: %s: %w", verb, err))
				return
			}
			if it.err == nil {
				n++
			}
			if !yield(it.rec, Noted(ctx, it.err)) || n == r.Limit && n > 0 {
				return
			}
		}
	}
}

func mustBeRange(r events.Range) {
	if r.Limit < 0 {
		panic(fmt.Sprintf("log: read: a range with the negative limit %d", r.Limit))
	}
}

// stretch is the part of the log that a scan goes over.
type stretch struct {
	filter      string        // of NATS subjects
	after, upto events.Offset // upto is never beyond head
	head        events.Offset // of the log, some time before the scan
	want        int           // about how many records the caller will take; 0: all
	seen        int           // number of records of the filter up to after; 0: unknown
}

// stretchOf returns the stretch of a range. It fixes the offset where a read ends.
func (l *Log) stretchOf(ctx context.Context, r events.Range) (stretch, error) {
	filter, err := filterOf(r)
	if err != nil {
		return stretch{}, err
	}
	// The watermark comes first: it is never inside a batch, while the head may be.
	s := stretch{filter: filter, after: r.After, upto: events.MaxOffset, want: r.Limit}
	if r.Subject != (events.Subject{}) && r.After > 0 {
		s.seen = r.Known
	}
	if l.safe != nil && !r.Buffered {
		if s.upto, err = l.safe.durable(ctx); err != nil {
			return stretch{}, err
		}
	}
	if s.head, err = l.Head(ctx); err != nil {
		return stretch{}, err
	}
	whole, err := l.whole(ctx, s.head)
	if err != nil {
		return stretch{}, fmt.Errorf("log: read: %w", err)
	}
	s.upto = min(s.upto, whole)
	if r.Upto != 0 {
		s.upto = min(s.upto, r.Upto)
	}
	return s, nil
}

// filterOf returns the NATS subjects of a range.
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

// item is a record or the damage at its offset.
type item struct {
	at  events.Offset
	rec events.Record
	err error // *events.DamageError
}

func itemOf(m Message) item {
	rec, err := decode(m)
	return item{at: m.Offset, rec: rec, err: err}
}

// scan yields the items of a stretch. An error ends it.
func (l *Log) scan(ctx context.Context, s stretch) iter.Seq2[item, error] {
	switch {
	case s.filter == events.SubjectFilter:
		return l.scanAll(ctx, s.after, s.upto, s.want, nil)
	case l.files != nil:
		return l.scanFiles(ctx, s)
	}
	return func(yield func(item, error) bool) {
		switch {
		case s.after >= s.upto:
		case l.isDense(s):
			l.scanDense(ctx, s, yield)
		default:
			l.scanSome(ctx, s, l.withHoles(s, yield))
		}
	}
}

// A stretch with many records, of which a large share matches the filter, is read whole.
const (
	longStretch = 8192
	denseShare  = 16 // one in this many
)

// isDense reports whether reading the whole stretch is cheaper than having the server look up its records.
func (l *Log) isDense(s stretch) bool {
	length := uint64(s.upto - s.after)
	return l.js != nil && s.want == 0 && length > longStretch && denseShare*l.js.about(s.filter, s.after, s.upto) > length
}

// scanDense reads every record of a stretch and yields those that match the filter. It cannot tell the subject of a
// damaged record. If it meets one, the server looks the records up and counts them, and scanDense yields those that it
// has not yielded yet.
func (l *Log) scanDense(ctx context.Context, s stretch, yield func(item, error) bool) {
	done := s.after
	for it, err := range l.scanAll(ctx, s.after, s.upto, 0, matcher(s.filter)) {
		if err == nil && it.err != nil {
			l.scanSome(ctx, s, l.withHoles(s, func(it item, err error) bool {
				return err == nil && it.at <= done || yield(it, err)
			}))
			return
		}
		if !yield(it, err) || err != nil {
			return
		}
		done = it.at
	}
}

// scanAll reads every record, and yields those whose subjects match, all if match is nil. Offsets have no gaps, so a
// missing one is damage.
func (l *Log) scanAll(ctx context.Context, after, upto events.Offset, want int, match func(subject string) bool) iter.Seq2[item, error] {
	return func(yield func(item, error) bool) {
		st, err := l.backend.State(ctx)
		if err != nil {
			yield(item{}, err)
			return
		}
		if st.First > 0 && after < st.First-1 {
			// If the first records are lost, the log begins behind them.
			for _, h := range l.holes.after(after) {
				if h.Offset >= st.First || h.Offset > upto {
					break
				}
				if !yield(item{at: h.Offset, err: &events.DamageError{Offset: h.Offset}}, nil) {
					return
				}
			}
			after = st.First - 1
		}
		if after >= upto {
			return
		}
		cur, err := l.backend.Scan(ctx, Query{Filter: events.SubjectFilter, After: after, Upto: upto, Want: want, Match: match})
		if err != nil {
			yield(item{}, err)
			return
		}
		defer cur.Close()
		take := func(m Message) bool {
			return match != nil && !match(m.Subject) || yield(itemOf(m), nil)
		}
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
				if !l.yieldGap(ctx, at, take, yield) {
					return
				}
			}
			if err == nil && !take(m) {
				return
			}
		}
	}
}

// yieldGap yields the item at an offset that a cursor skipped: nearly always damage. If the record can be read after
// all, take receives it.
func (l *Log) yieldGap(ctx context.Context, at events.Offset, take func(Message) bool, yield func(item, error) bool) bool {
	m, err := l.backend.Get(ctx, at)
	switch {
	case err == nil:
		return take(m)
	case isNotFound(err):
		return yield(item{at: at, err: l.lost(at)}, nil)
	case events.IsDamage(err):
		return yield(item{at: at, err: err}, nil)
	}
	yield(item{}, err)
	return false
}

// scanSome reads the records of a filter and counts them: they must be as many as the backend's index knows. If they
// are not, it reads every record of the stretch.
//
// Records are never removed and the index only grows, so an earlier count is never too large. The records behind the
// stretch are counted before the cursor announces the records behind the stretch's beginning. The difference is
// therefore never too small: if that many came, none is missing. Events that arrive between the two counts make it too
// large; then the counts are repeated.
func (l *Log) scanSome(ctx context.Context, s stretch, yield func(item, error) bool) {
	fail := func(err error) { yield(item{}, err) }
	beyond := uint64(0)
	if s.upto < s.head {
		var err error
		if beyond, err = l.count(ctx, s.filter, s.upto, s.upto); err != nil {
			fail(err)
			return
		}
	}
	cur, err := l.backend.Scan(ctx, Query{Filter: s.filter, After: s.after, Upto: s.upto, Want: s.want})
	if err != nil {
		fail(err)
		return
	}
	defer cur.Close()
	var window []item
	got, from := uint64(0), s.after
	for end := false; !end; {
		if window, end, err = fillWindow(ctx, cur, window[:0], s.want); err != nil {
			fail(err)
			return
		}
		got += uint64(len(window))
		last, complete := s.upto, true
		if end {
			var announced uint64
			announced, err = cur.Announced(ctx)
			complete = got+beyond == announced
			if err == nil && !complete {
				complete, err = l.recount(ctx, s, got)
			}
			if err == nil && complete && s.seen > 0 {
				complete, err = l.recountAll(ctx, s, uint64(s.seen)+got)
			}
		} else {
			// The check is provisional: a damaged record and a new one cancel out. The count at the end notices that.
			last = window[len(window)-1].at
			var rest, announced uint64
			if rest, err = l.count(ctx, s.filter, last, s.upto); err == nil {
				announced, err = cur.Announced(ctx)
			}
			complete = got+rest >= announced
		}
		if err != nil {
			fail(err)
			return
		}
		if !complete {
			if l.yieldWhole(ctx, s, from, yield) {
				yield(item{}, io.EOF)
			}
			return
		}
		for _, it := range window {
			if !yield(it, nil) {
				return
			}
		}
		from = last
	}
	yield(item{}, io.EOF)
}

// maxRecounts bounds how often a count is repeated because events arrived meanwhile. Reading every record is always
// correct.
const maxRecounts = 3

// recount reports whether n is the number of records of a stretch.
func (l *Log) recount(ctx context.Context, s stretch, n uint64) (bool, error) {
	for range maxRecounts {
		beyond, all, err := l.counts(ctx, s)
		if err != nil || all == n+beyond {
			return err == nil, err
		}
	}
	return false, nil
}

// recountAll reports whether the records of a filter up to the end of a stretch are at most n. From the beginning of
// the log a server counts by an index, which includes lost records. Behind an offset inside one of its blocks, it
// counts only the readable ones.
func (l *Log) recountAll(ctx context.Context, s stretch, n uint64) (bool, error) {
	s.after = 0
	all, err := l.count(ctx, s.filter, s.after, s.upto)
	for try := 0; err == nil && all > n && try < maxRecounts; try++ {
		var beyond uint64
		beyond, all, err = l.counts(ctx, s)
		all -= min(all, beyond)
	}
	return err == nil && all <= n, err
}

// counts returns the number of records that match a stretch's filter behind the stretch, and behind its beginning.
func (l *Log) counts(ctx context.Context, s stretch) (beyond, all uint64, err error) {
	if beyond, err = l.count(ctx, s.filter, s.upto, s.upto); err != nil {
		return 0, 0, err
	}
	all, err = l.count(ctx, s.filter, s.after, s.upto)
	return beyond, all, err
}

// count returns how many records of a filter there are after an offset, up to a bound that is the same for each upto.
func (l *Log) count(ctx context.Context, filter string, after, upto events.Offset) (uint64, error) {
	cur, err := l.backend.Scan(ctx, Query{Filter: filter, After: after, Upto: upto, Want: 1})
	if err != nil {
		return 0, err
	}
	defer cur.Close()
	return cur.Announced(ctx)
}

// fillWindow takes the next records of a cursor, as many as may be kept in memory.
func fillWindow(ctx context.Context, cur Cursor, window []item, want int) (_ []item, end bool, err error) {
	limit := windowRecords
	if want > 0 {
		limit = min(limit, want)
	}
	for size := 0; len(window) < limit && size < windowBytes; {
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

// yieldWhole reads every record of a stretch. It yields the damage up to from, where the records were yielded already,
// and everything behind. It reports whether it reached the end.
func (l *Log) yieldWhole(ctx context.Context, s stretch, from events.Offset, yield func(item, error) bool) bool {
	for it, err := range l.scanAll(ctx, s.after, s.upto, 0, matcher(s.filter)) {
		if err == nil && it.err == nil && it.at <= from {
			continue
		}
		if !yield(it, err) || err != nil {
			return false
		}
	}
	return true
}

// matcher returns a function that reports whether a subject matches a filter, which may have the wildcard *.
func matcher(filter string) func(subject string) bool {
	if !strings.Contains(filter, "*") {
		return func(subject string) bool { return subject == filter }
	}
	tokens := strings.Split(filter, ".")
	return func(subject string) bool {
		for i, want := range tokens {
			have, rest, more := strings.Cut(subject, ".")
			if want != "*" && want != have || more != (i < len(tokens)-1) {
				return false
			}
			subject = rest
		}
		return true
	}
}
