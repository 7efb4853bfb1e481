package log

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/nats/segindex"
)

// Segments says how a log is cut into streams. After a crash the server reads a whole stream again, so a log in one
// stream would take longer and longer to open. Each stream continues the numbers of the one before. An offset names an
// event whatever segment holds it, and nothing outside this package knows of segments.
type Segments struct {
	// Bytes and Subjects of a segment, as the server counts them, after which the next segment begins. If both are 0,
	// the log stays in one segment, as on a server that others write to as well.
	Bytes    uint64
	Subjects uint64

	// Dir keeps a file for each full segment with its subjects and ids, so that a question about one subject asks few
	// segments. The files may be lost. "": no files; every segment is asked.
	Dir string

	// Blocks is the folder in which a server on this machine keeps the streams. A long read takes full segments from
	// its files: the server would keep its notes on each block that it reads for minutes. "": ask the server.
	Blocks string

	// AtRest is called while nothing is being appended: when a segment was begun, and once at the beginning. Reads wait
	// meanwhile, or ask again.
	AtRest func() error

	// Above is an offset that an event once had, whether or not the event still exists: new events come behind it. If
	// the server would continue at or below it, a segment is begun.
	Above events.Offset
}

// segment is a stream of the line. Only its atomic fields change.
type segment struct {
	n      int
	stream jetstream.Stream
	name   string
	made   time.Time
	first  events.Offset // the lowest possible offset
	last   events.Offset // the highest offset; 0: the segment is written to
	closed bool          // its subjects were taken from it

	replicated bool // the server that answers may be behind

	sealed atomic.Bool
	index  atomic.Pointer[segindex.Index] // nil: not known (yet)

	// written has everything in the segment that is written to, as this process stored it; nil: it may be incomplete.
	written atomic.Pointer[written]
	known   *segindex.Builder // the same for a full segment without index; only the roller uses it

	subjects *subjectFilter // of the segment that is written to, if this process alone writes to it
}

// identity returns the segment that the index must belong to.
func (s *segment) identity() segindex.Segment {
	return segindex.Segment{Name: s.name, Made: s.made.UnixNano(), First: uint64(s.first), Last: uint64(s.last)}
}

// find returns the segment's entry of a literal subject. known is false if there is no index, or a damaged one, which
// find drops.
func (s *segment) find(subject string) (e segindex.Entry, there, known bool) {
	x := s.index.Load()
	if x == nil {
		return e, false, false
	}
	e, there, err := x.Find(subject)
	if err != nil {
		s.index.CompareAndSwap(x, nil)
		return segindex.Entry{}, false, false
	}
	return e, there, true
}

// line is the log's streams at one time, oldest first. It is never empty.
type line struct {
	segments []*segment
	moved    chan struct{} // closed when another line replaced this one
}

func (l *line) active() *segment { return l.segments[len(l.segments)-1] }

// indexOf returns the index of the segment for an offset: the first one for offsets below all of them.
func (l *line) indexOf(at events.Offset) int {
	next := sort.Search(len(l.segments), func(i int) bool { return l.segments[i].first > at })
	return max(0, next-1)
}

func segmentName(lineName string, n int) string { return lineName + "_" + strconv.Itoa(n) }

func segmentNumber(lineName, name string) (int, bool) {
	digits, ok := strings.CutPrefix(name, lineName+"_")
	n, err := strconv.Atoi(digits)
	return n, ok && err == nil && n > 0 && segmentName(lineName, n) == name
}

// load asks the server for its segments, and keeps the ones that it has loaded before. If there are none, it returns
// nil.
func (b *jetStream) load(ctx context.Context) ([]*segment, error) {
	numbers, err := ask(ctx, func(ctx context.Context) ([]int, error) { return b.numbers(ctx) })
	if err != nil {
		return nil, err
	}
	var found []*segment
	for i, n := range numbers {
		if n != i+1 {
			return nil, &ConfigError{Stream: b.name, Field: "segments", Have: fmt.Sprint(numbers), Need: "all from 1 on"}
		}
		// Readers share the segments of a line. So a change, such as the segment's end, is made in a copy that no
		// reader has yet.
		s := b.known(n)
		if s == nil || !s.sealed.Load() || s.last == 0 {
			var err error
			if s, err = b.fetch(ctx, n); err != nil {
				return nil, err
			}
		}
		found = append(found, s)
	}
	return b.join(found)
}

// numbers lists the segments by their numbers.
func (b *jetStream) numbers(ctx context.Context) (list []int, err error) {
	names := b.js.StreamNames(ctx)
	for name := range names.Name() {
		if n, ok := segmentNumber(b.name, name); ok {
			list = append(list, n)
		}
	}
	slices.Sort(list)
	return list, names.Err()
}

// known returns a segment that was loaded before.
func (b *jetStream) known(n int) *segment {
	if l := b.line.Load(); l != nil && n <= len(l.segments) {
		return l.segments[n-1]
	}
	return nil
}

// fetch loads a segment from the server.
func (b *jetStream) fetch(ctx context.Context, n int) (*segment, error) {
	stream, err := ask(ctx, func(ctx context.Context) (jetstream.Stream, error) { return b.js.Stream(ctx, segmentName(b.name, n)) })
	if err != nil {
		return nil, err
	}
	return b.newSegment(n, stream), nil
}

func (b *jetStream) newSegment(n int, stream jetstream.Stream) *segment {
	info := stream.CachedInfo()
	s := &segment{
		n: n, stream: stream, name: info.Config.Name, made: info.Created,
		first: events.Offset(max(info.Config.FirstSeq, 1)), closed: isClosed(info.Config), replicated: info.Config.Replicas > 1,
	}
	s.sealed.Store(info.Config.Sealed)
	if b.owner && !s.closed {
		s.subjects = newSubjectFilter()
	}
	return s
}

// join sets each segment's end, below the beginning of the next, and opens its index.
func (b *jetStream) join(found []*segment) ([]*segment, error) {
	for i, s := range found[:max(0, len(found)-1)] {
		next := found[i+1]
		if have := events.Offset(s.stream.CachedInfo().State.LastSeq); have >= next.first {
			return nil, &ConfigError{Stream: next.name, Field: "first_seq", Have: strconv.FormatUint(uint64(next.first), 10), Need: fmt.Sprintf("above %d, the last of %s", have, s.name)}
		}
		if s.last == 0 {
			s.last = next.first - 1
		}
		if b.segments.Dir != "" && s.sealed.Load() && s.index.Load() == nil {
			_ = s.openIndex(b.segments.Dir) // on an error the index is made again
		}
	}
	return found, nil
}

// openIndex opens the index of a full segment in the folder of the indexes.
func (s *segment) openIndex(dir string) error {
	x, err := segindex.Open(s.indexPath(dir), s.identity())
	if err == nil {
		s.index.Store(x)
	}
	return err
}

func (s *segment) indexPath(dir string) string { return filepath.Join(dir, s.name+".index") }

// use replaces the line. The caller holds b.changing, or no other goroutine has b yet.
func (b *jetStream) use(segments []*segment) {
	before := b.line.Swap(&line{segments: segments, moved: make(chan struct{})})
	if before != nil {
		close(before.moved)
	}
}

// refresh loads the line again if the active segment of this process's line is not the active one any more.
func (b *jetStream) refresh(ctx context.Context) error {
	b.changing.Lock()
	defer b.changing.Unlock()
	segments, err := b.find(ctx, true)
	if err != nil {
		return err
	}
	if len(segments) > len(b.line.Load().segments) {
		b.use(segments)
	}
	return nil
}

// stale reports whether a segment that this process takes for the active one is closed, and then loads the line again.
func (b *jetStream) stale(ctx context.Context, s *segment, c jetstream.StreamConfig) (bool, error) {
	if !isClosed(c) || s.last != 0 {
		return false, nil
	}
	if b.line.Load().active() != s {
		return true, nil // another goroutine loaded it
	}
	if err := b.refresh(ctx); err != nil {
		return false, err
	}
	return b.line.Load().active() != s, nil
}

// lastBelow returns the offset of a subject's last message in the full segments of the line, or 0.
func (b *jetStream) lastBelow(ctx context.Context, l *line, subject string) (events.Offset, error) {
	for _, s := range slices.Backward(l.segments[:len(l.segments)-1]) {
		e, there, known := s.find(subject)
		if known {
			if there {
				return events.Offset(e.Last), nil
			}
			continue
		}
		m, err := b.lastOf(ctx, s, subject)
		if !errors.Is(err, ErrNotFound) {
			return m.Offset, err
		}
	}
	return 0, nil
}

// Indexed implements indexed: every segment up to the offset has an index.
func (b *jetStream) Indexed() events.Offset {
	upto := events.Offset(0)
	for _, s := range b.line.Load().segments {
		if s.last == 0 || s.index.Load() == nil {
			break
		}
		upto = s.last
	}
	return upto
}

// MayHold implements indexed. A segment whose index turns out to be damaged may hold any id.
func (b *jetStream) MayHold(subject, id string, upto events.Offset) (spans []span) {
	for _, s := range b.line.Load().segments {
		if s.last == 0 || s.first > upto {
			break
		}
		e, there, known := s.find(subject)
		if known && !there {
			continue
		}
		part := span{After: s.first - 1, Upto: s.last}
		if known {
			part = span{After: events.Offset(e.First) - 1, Upto: events.Offset(e.Last)}
			if x := s.index.Load(); x != nil {
				if may, err := x.MayHold(id); err == nil && !may {
					continue
				}
			}
		}
		spans = append(spans, part)
	}
	return spans
}
