package log

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/nats/natsfile"
)

// Scan implements Backend.
func (b *jetStream) Scan(_ context.Context, q Query) (Cursor, error) {
	if b.reads.IsClosed() {
		return nil, errHungUp
	}
	return newScan(b, q), nil
}

// scan is the Cursor on a line: one segment after the other. It skips segments that are known not to hold the subject.
type scan struct {
	b       *jetStream
	q       Query
	literal bool
	line    *line
	at      events.Offset    // of the last message
	index   int              // of the segment that is read
	last    int              // of the last segment to be read
	reading *consumer        // nil: not begun
	blocks  *natsfile.Reader // set if the segment is read from its blocks
	served  bool             // the server is asked for the rest of the segment
	losses  int              // of consumers since the last message
	counts  []*uint64        // by segment: announced messages; nil: not asked
}

func newScan(b *jetStream, q Query) *scan {
	s := &scan{b: b, q: q, literal: !strings.ContainsAny(q.Filter, "*>"), at: q.After}
	s.settle(b.line.Load())
	return s
}

// settle sets which segments of a line the scan reads from its present position on.
func (s *scan) settle(l *line) {
	s.line, s.index = l, l.indexOf(s.at+1)
	s.last = len(l.segments) - 1
	if !s.q.Live {
		s.last = l.indexOf(s.q.Upto)
	}
	s.counts = make([]*uint64, len(l.segments))
}

// part returns the query for the i-th segment of the line.
func (s *scan) part(i int) Query {
	seg, q := s.line.segments[i], s.q
	q.After = max(q.After, s.at, seg.first-1)
	if seg.last != 0 {
		q.Live, q.Upto = false, seg.last
		if !s.q.Live {
			q.Upto = min(q.Upto, s.q.Upto)
		}
	}
	return q
}

// lacks reports whether a segment is known to hold no record of the subject.
func (s *scan) lacks(i int) bool {
	if !s.literal {
		return false
	}
	_, there, known := s.line.segments[i].find(s.q.Filter)
	return known && !there
}

// Announced implements Cursor. The count of a full segment does not change any more, so it may be asked late.
func (s *scan) Announced(ctx context.Context) (uint64, error) {
	first := s.line.indexOf(s.q.After + 1)
	total := uint64(0)
	for i := first; i <= s.last; i++ {
		n, err := s.count(ctx, i)
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}

func (s *scan) count(ctx context.Context, i int) (uint64, error) {
	if s.counts[i] != nil {
		return *s.counts[i], nil
	}
	n, err := uint64(0), error(nil)
	switch {
	case s.lacks(i):
	case i == s.index && s.consumer().q.After == s.begin(i):
		n, err = s.consumer().count(ctx)
	case s.line.segments[i].last != 0 && s.indexed(i) > 0: // added below
	default:
		q := s.part(i)
		q.After = s.begin(i)
		c := newConsumer(s.b, s.line.segments[i], q)
		n, err = c.count(ctx)
		c.Close()
	}
	if err == nil {
		n = max(n, s.indexed(i))
		s.counts[i] = &n
	}
	return n, err
}

// indexed returns the number of the subject's messages in a segment by its index, which includes messages that the
// server has lost since. It returns 0 if there is no index or the segment is not read from end to end.
func (s *scan) indexed(i int) uint64 {
	seg := s.line.segments[i]
	if !s.literal || s.begin(i) != seg.first-1 {
		return 0
	}
	e, _, _ := seg.find(s.q.Filter)
	return e.Count
}

// begin returns the offset behind which the query begins in a segment.
func (s *scan) begin(i int) events.Offset { return max(s.q.After, s.line.segments[i].first-1) }

// consumer returns the consumer of the current segment.
func (s *scan) consumer() *consumer {
	if s.reading == nil {
		q := s.part(s.index)
		s.reading = newConsumer(s.b, s.line.segments[s.index], q)
		switch {
		case q.Live:
			s.reading.moved = s.line.moved
		case q.isLong():
			s.reading.dial = s.b.scans // worth a connection for a read of more than one request
		}
	}
	return s.reading
}

// Next implements Cursor.
func (s *scan) Next(ctx context.Context) (Message, error) {
	for {
		if s.index > s.last {
			return Message{}, io.EOF
		}
		q := s.part(s.index)
		if s.lacks(s.index) || !q.Live && q.After >= q.Upto {
			s.advance()
			continue
		}
		if m, ok := s.fromBlocks(q); ok {
			s.at = m.Offset
			return m, ctx.Err()
		}
		c := s.consumer()
		m, err := c.Next(ctx)
		switch {
		case err == nil:
			s.at, s.losses = m.Offset, 0
			return m, nil
		case errors.Is(err, io.EOF):
			s.advance()
		case errors.Is(err, errMoved):
			// The rest of the segment is read to its end; then the next one is live.
			s.stop()
			s.settle(s.b.line.Load())
		case errors.Is(err, ErrUnavailable) && s.losses < maxLosses && !s.b.reads.IsClosed():
			// The server may have lost the consumer, as it does when it opens its streams again: another one continues
			// behind the last message.
			s.losses++
			s.stop()
			if err := pause(ctx, 6); err != nil {
				return Message{}, err
			}
		default:
			return Message{}, err
		}
	}
}

// isLong reports whether a query is for all records of a stretch that exceeds one request.
func (q Query) isLong() bool {
	return q.Filter == events.SubjectFilter && q.Want == 0 && !q.Live && q.Upto-q.After > firstRequest
}

// about estimates how many records of a filter a stretch has in the segments that a long scan reads from blocks.
func (b *jetStream) about(filter string, after, upto events.Offset) uint64 {
	n := uint64(0)
	if b.segments.Blocks == "" {
		return n
	}
	literal := !strings.ContainsAny(filter, "*>")
	for _, seg := range b.line.Load().segments {
		from, to := max(after+1, seg.first), min(upto, seg.last)
		if seg.last == 0 || from > to {
			continue
		}
		if !literal {
			n += uint64(to - from + 1)
		} else if e, _, _ := seg.find(filter); e.Count > 0 {
			n += max(1, e.Count*uint64(to-from+1)/uint64(seg.last-seg.first+1))
		}
	}
	return n
}

// fromBlocks returns the next message of a full segment, if the scan is long and the server's files are intact there.
// Otherwise the scan asks the server from there on, which decides whether the messages can be read.
func (s *scan) fromBlocks(q Query) (m Message, ok bool) {
	seg := s.line.segments[s.index]
	if s.served || s.b.segments.Blocks == "" || seg.last == 0 || !s.q.isLong() {
		return m, false
	}
	var err error
	if s.blocks == nil {
		dir := filepath.Join(s.b.segments.Blocks, seg.name, "msgs")
		s.blocks, err = natsfile.NewReader(dir, seg.name, uint64(q.After)+1, uint64(q.Upto), q.Match)
	}
	var stored natsfile.Message
	if err == nil {
		stored, err = s.blocks.Next()
	}
	if err != nil {
		s.closeBlocks()
		s.served = true
		return m, false
	}
	return Message{Subject: stored.Subject, Data: stored.Data, Offset: events.Offset(stored.Seq), Time: time.Unix(0, stored.Time).UTC(), wire: stored.Header}, true
}

func (s *scan) closeBlocks() {
	if s.blocks != nil {
		s.blocks.Close()
		s.blocks = nil
	}
}

// maxLosses bounds how often a consumer that returns nothing is replaced.
const maxLosses = 3

// advance moves to the next segment. The announced count of this one is kept.
func (s *scan) advance() {
	if s.reading != nil && s.reading.made && s.reading.q.After == s.begin(s.index) {
		n := max(s.reading.announced+s.reading.late, s.indexed(s.index))
		s.counts[s.index] = &n
	}
	s.stop()
	s.index++
}

func (s *scan) stop() {
	s.closeBlocks()
	s.served = false
	if s.reading != nil {
		s.reading.Close()
		s.reading = nil
	}
}

// Close implements Cursor.
func (s *scan) Close() { s.stop() }
