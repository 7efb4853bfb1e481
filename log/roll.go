package log

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/nats/natswire"
	"github.com/tallylog/tally/internal/nats/segindex"
)

// A segment is begun in steps, between two appends:
//
//  1. everything that was stored is made durable;
//  2. the full stream releases its subjects, and forgets the ids;
//  3. the next one is created with them, and continues the numbers;
//  4. the full one is sealed, and its index is made.
//
// A crash after any step leaves a state that the next owner recognises and continues from: a last stream without
// subjects needs its successor, and a full stream that is not sealed or has no index needs step 4.

// isClosed reports whether a stream takes no more events.
func isClosed(c jetstream.StreamConfig) bool {
	return c.Sealed || !slices.Equal(c.Subjects, []string{events.SubjectFilter})
}

// shortestWindow is the shortest time for which a stream can remember ids. A full stream takes no more events, and the
// server reads messages younger than the window whenever it opens a stream.
const shortestWindow = 100 * time.Millisecond

// closedSubject returns the subject of a full stream, which must have at least one.
func closedSubject(name string) string { return "tally.closed." + name }

// atRest runs work while no publication is under way and the earlier ones are durable.
func (b *jetStream) atRest(ctx context.Context, drain func() error, work func(context.Context) error) error {
	b.appending.Lock()
	defer b.appending.Unlock()
	if err := drain(); err != nil {
		return err
	}
	return work(ctx)
}

// atRest runs work at such a time, and then Segments.AtRest.
func (r *roller) atRest(ctx context.Context, work func(context.Context) error) error {
	return r.b.atRest(ctx, r.drain, func(ctx context.Context) error {
		if err := work(ctx); err != nil || r.b.segments.AtRest == nil {
			return err
		}
		return r.b.segments.AtRest()
	})
}

// flushSubject is a subject of the log without events.
var flushSubject = strings.ReplaceAll(events.SubjectFilter, "*", "-")

// begin closes the active segment and creates the next one. No message is published meanwhile. If it fails, the next
// call continues where it stopped.
func (b *jetStream) begin(ctx context.Context) error {
	b.changing.Lock()
	defer b.changing.Unlock()
	segments := b.line.Load().segments
	full := segments[len(segments)-1]
	cfg := full.stream.CachedInfo().Config
	b.half.Store(true)
	if !isClosed(cfg) {
		if err := b.flush(ctx); err != nil {
			return fmt.Errorf("close %s: %w", full.name, err)
		}
		cfg.Subjects = []string{closedSubject(full.name)}
		cfg.Duplicates = shortestWindow
		if _, err := b.js.UpdateStream(ctx, cfg); err != nil {
			return fmt.Errorf("close %s: %w", full.name, apiError(err))
		}
	}
	info, err := full.info(ctx)
	if err != nil {
		return err
	}
	last := max(events.Offset(info.State.LastSeq), full.first-1, b.segments.Above)
	next, err := b.create(ctx, full.n+1, last+1)
	if err != nil {
		return err
	}
	done := &segment{n: full.n, stream: full.stream, name: full.name, made: full.made, first: full.first, last: next.first - 1, closed: true}
	done.known = full.wrote(info.State.Msgs)
	b.use(append(slices.Clone(segments[:len(segments)-1]), done, next))
	b.half.Store(false)
	b.logger.Debug("a segment was begun", "stream", next.name, "first", next.first)
	return nil
}

// flush waits until the server has processed all messages that this process has sent to a segment, including those whose
// senders wait no longer: a message that is stored after the segment's end was read would get an offset of the next
// segment. The server takes messages in their order, and refuses this one, which names no stream.
func (b *jetStream) flush(ctx context.Context) error {
	_, err := b.writes.request(ctx, natswire.Publication{Subject: flushSubject, Extra: []natswire.Field{{Name: headerStream, Value: "-"}}})
	if !errors.Is(err, errOtherStream) {
		return fmt.Errorf("messages under way: %w", cmp.Or(err, error(ErrUnknown)))
	}
	return nil
}

// finish creates the segment after one that was closed, if its creation failed then.
func (b *jetStream) finish(ctx context.Context) error {
	b.appending.Lock()
	defer b.appending.Unlock()
	if !b.half.Load() {
		return nil
	}
	return b.begin(ctx)
}

// settle seals and indexes full segments, oldest first. It changes no stream while sound returns an error.
func (b *jetStream) settle(ctx context.Context, sound func() error) error {
	segments := b.line.Load().segments
	for _, s := range segments[:len(segments)-1] {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := sound(); err != nil {
			return err
		}
		if err := b.seal(context.WithoutCancel(ctx), s); err != nil {
			return err
		}
		if b.segments.Dir == "" || s.index.Load() != nil {
			continue
		}
		if err := b.index(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// seal makes the server refuse any change of a full segment.
func (b *jetStream) seal(ctx context.Context, s *segment) error {
	if s.sealed.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, stepTime)
	defer cancel()
	info, err := s.info(ctx)
	if err != nil {
		return err
	}
	if !info.Config.Sealed {
		cfg := info.Config
		cfg.Sealed = true
		if _, err := b.js.UpdateStream(ctx, cfg); err != nil {
			return fmt.Errorf("seal %s: %w", s.name, apiError(err))
		}
	}
	s.sealed.Store(true)
	return nil
}

// index writes the index of a full segment.
func (b *jetStream) index(ctx context.Context, s *segment) error {
	build := s.known
	if build == nil {
		var err error
		if build, err = b.indexOf(ctx, s); err != nil {
			return fmt.Errorf("index %s: %w", s.name, err)
		}
	}
	if err := os.MkdirAll(b.segments.Dir, 0o700); err != nil {
		return err
	}
	if err := build.Write(s.indexPath(b.segments.Dir), s.identity()); err != nil {
		return err
	}
	err := s.openIndex(b.segments.Dir)
	if err == nil {
		s.known = nil
	}
	return err
}

// indexOf reads the headers of a full segment for its subjects and ids.
func (b *jetStream) indexOf(ctx context.Context, s *segment) (*segindex.Builder, error) {
	build := segindex.NewBuilder()
	cur := newConsumer(b, s, Query{Filter: events.SubjectFilter, After: s.first - 1, Upto: s.last})
	cur.dial, cur.headers = b.scans, true
	defer cur.Close()
	for {
		m, err := cur.Next(ctx)
		if errors.Is(err, io.EOF) {
			return build, nil
		}
		if err != nil {
			return nil, err
		}
		id := m.field(headerMsgID)
		if id == "" {
			id = b.derivedID(ctx, m)
		}
		build.Add(m.Subject, id, uint64(m.Offset))
	}
}

// derivedID returns the id that the server would have known a message by if the publisher had not left it out; "" if
// the message is not an event.
func (b *jetStream) derivedID(ctx context.Context, m Message) string {
	whole, err := b.Get(ctx, m.Offset)
	if err != nil {
		return ""
	}
	rec, err := decode(whole)
	if err != nil {
		return ""
	}
	return rec.MsgID()
}

// roller begins segments and settles full ones, one at a time. So at most two have no index, and after a crash the
// server reads at most those and the active one.
type roller struct {
	b     *jetStream
	drain func() error
	sound func() error           // returns an error while the state of the disk is unknown
	tell  atomic.Pointer[func()] // called when there is another segment
	bytes atomic.Int64           // stored since the server was last asked
	kick  chan struct{}
	done  chan struct{}
}

// stepTime bounds one change of the streams.
const stepTime = 30 * time.Second

func newRoller(b *jetStream, drain, sound func() error) *roller {
	r := &roller{b: b, drain: drain, sound: sound, kick: make(chan struct{}, 1), done: make(chan struct{})}
	r.kick <- struct{}{} // a step may be left to do
	return r
}

// stored notes the size of a stored append.
func (r *roller) stored(bytes int) {
	if r.bytes.Add(int64(bytes)) > int64(r.b.segments.Bytes/16) {
		select {
		case r.kick <- struct{}{}:
		default:
		}
	}
}

// run works until ctx is done. It logs a failure, and the next kick tries again.
func (r *roller) run(ctx context.Context) {
	defer close(r.done)
	if err := r.atRest(ctx, func(context.Context) error { return nil }); err != nil && ctx.Err() == nil {
		r.b.logger.Warn("the server's streams are left as they are for now", "error", err)
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.kick:
		}
		if err := r.work(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, context.Canceled) {
			r.b.logger.Warn("the log's segments are left as they are for now", "error", err)
		}
	}
}

func (r *roller) work(ctx context.Context) error {
	r.bytes.Store(0)
	info, err := r.b.info(ctx)
	if err != nil {
		return err
	}
	limit := r.b.segments
	// A change of streams that has begun is completed even if the log is closed: the server must not be stopped in the
	// middle of it.
	whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), stepTime)
	defer cancel()
	if info.State.Msgs > 0 && (info.State.Bytes >= limit.Bytes || limit.Subjects > 0 && info.State.NumSubjects >= limit.Subjects) {
		if err := r.atRest(whole, r.b.begin); err != nil {
			return err
		}
		if tell := r.tell.Load(); tell != nil {
			(*tell)()
		}
	}
	return r.b.settle(ctx, r.sound)
}
