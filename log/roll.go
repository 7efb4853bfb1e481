package log

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/internal/segindex"
)

// A segment is begun in steps, between two appends:
//
//  1. everything that was stored is made durable;
//  2. the full stream gives its subjects up;
//  3. the next one is created with them, and continues the numbers;
//  4. the full one is sealed, the server's own index of it is made to exist, so that
//     it is never read whole again, and then ours.
//
// A crash after any of them leaves a state that the next owner recognises, and goes
// on from: a last stream without subjects wants the next, a full one that is not
// sealed or has no index wants that.

// isClosed reports whether a stream takes no events any more.
func isClosed(c jetstream.StreamConfig) bool {
	return c.Sealed || !slices.Equal(c.Subjects, []string{events.SubjectFilter})
}

// closedSubject is what a full stream listens to, since it must listen to something.
func closedSubject(name string) string { return "tally.closed." + name }

// roll begins the next segment. No publication is under way meanwhile; drain returns
// when those before are durable.
func (b *jetStream) roll(ctx context.Context, drain func(context.Context) error) error {
	b.appending.Lock()
	defer b.appending.Unlock()
	if err := drain(ctx); err != nil {
		return err
	}
	return b.begin(ctx)
}

// begin closes the active segment and creates the next one. Nothing is published
// meanwhile. If it fails, the next call goes on from where it was.
func (b *jetStream) begin(ctx context.Context) error {
	b.changing.Lock()
	defer b.changing.Unlock()
	segments := b.line.Load().segments
	full := segments[len(segments)-1]
	cfg := full.stream.CachedInfo().Config
	b.half.Store(true)
	if !isClosed(cfg) {
		cfg.Subjects = []string{closedSubject(full.name)}
		if _, err := b.js.UpdateStream(ctx, cfg); err != nil {
			return fmt.Errorf("close %s: %w", full.name, apiError(err))
		}
	}
	info, err := full.stream.Info(ctx)
	if err != nil {
		return apiError(err)
	}
	last := max(events.Offset(info.State.LastSeq), full.first-1, b.segments.Above)
	next, err := b.create(ctx, full.n+1, last+1)
	if err != nil {
		return err
	}
	done := &segment{n: full.n, stream: full.stream, name: full.name, made: full.made, first: full.first, last: next.first - 1, closed: true}
	b.use(append(slices.Clone(segments[:len(segments)-1]), done, next))
	b.half.Store(false)
	b.logger.Debug("a segment was begun", "stream", next.name, "first", next.first)
	return nil
}

// finish begins the segment for which the one before was closed already, if its
// creation failed then.
func (b *jetStream) finish(ctx context.Context) error {
	b.appending.Lock()
	defer b.appending.Unlock()
	if !b.half.Load() {
		return nil
	}
	return b.begin(ctx)
}

// settle does for full segments what is left to do, oldest first.
func (b *jetStream) settle(ctx context.Context) error {
	segments := b.line.Load().segments
	for _, s := range segments[:len(segments)-1] {
		if ctx.Err() != nil {
			return ctx.Err()
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
	info, err := s.stream.Info(ctx)
	if err != nil {
		return apiError(err)
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

// index makes both indexes of a full segment: the server's, then ours, which says
// that the other is there.
func (b *jetStream) index(ctx context.Context, s *segment) error {
	if err := b.serverIndex(ctx, s); err != nil {
		return fmt.Errorf("index %s: %w", s.name, err)
	}
	build, err := b.indexOf(ctx, s)
	if err != nil {
		return fmt.Errorf("index %s: %w", s.name, err)
	}
	if err := os.MkdirAll(b.segments.Dir, 0o700); err != nil {
		return err
	}
	if err := build.Write(b.indexPath(s), s.identity()); err != nil {
		return err
	}
	x, err := segindex.Open(b.indexPath(s), s.identity())
	if err != nil {
		return err
	}
	s.index.Store(x)
	return nil
}

// serverIndex has the server write its index of a stream. It does so by itself
// within two and a half minutes, and when it stops; until then a crash makes it read
// the whole stream again. It also does before it gives the last part of a backup, so
// one is asked for, and thrown away.
func (b *jetStream) serverIndex(ctx context.Context, s *segment) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	inbox := b.reads.NewInbox()
	parts := make(chan *nats.Msg, 256)
	sub, err := b.reads.ChanSubscribe(inbox, parts)
	if err != nil {
		return fmt.Errorf("%w: %v", ErrUnavailable, err)
	}
	defer sub.Unsubscribe()
	request, err := rawjson.Marshal(struct {
		Deliver     string `json:"deliver_subject"`
		NoConsumers bool   `json:"no_consumers"`
		Window      int    `json:"window_size"`
	}{inbox, true, 4 << 20})
	if err != nil {
		return err
	}
	reply, err := b.reads.RequestWithContext(ctx, "$JS.API.STREAM.SNAPSHOT."+s.name, request)
	if err != nil {
		return fmt.Errorf("%w: %v", ErrUnavailable, err)
	}
	var refused struct {
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(reply.Data, &refused); err != nil {
		return err
	}
	if refused.Error != nil {
		return apiError(refused.Error)
	}
	for {
		select {
		case part := <-parts:
			if len(part.Data) == 0 { // the end, or that there was none
				if status := part.Header.Get("Status"); status != "" && status != "204" {
					return fmt.Errorf("%w: %s %s", ErrUnavailable, status, part.Header.Get("Description"))
				}
				return nil
			}
			if part.Reply == "" {
				continue // the last part, of which no receipt is wanted
			}
			if err := part.Respond(nil); err != nil {
				return fmt.Errorf("%w: %v", ErrUnavailable, err)
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// indexOf reads a full segment for its subjects and ids.
func (b *jetStream) indexOf(ctx context.Context, s *segment) (*segindex.Builder, error) {
	build := segindex.NewBuilder()
	cur := newConsumer(b, s, Query{Filter: events.SubjectFilter, After: s.first - 1, Upto: s.last})
	defer cur.Close()
	for {
		m, err := cur.Next(ctx)
		if errors.Is(err, io.EOF) {
			return build, nil
		}
		if err != nil {
			return nil, err
		}
		build.Add(m.Subject, idOf(m), uint64(m.Offset))
	}
}

// idOf gives the id by which the server knew a message, or would have: somebody who
// published around Append may have left it out.
func idOf(m Message) string {
	if id := m.Header[headerMsgID]; len(id) == 1 {
		return id[0]
	}
	rec, err := decode(m)
	if err != nil {
		return ""
	}
	return rec.MsgID()
}

// roller begins segments and settles full ones, one thing after the other: so at
// most two are without an index, and a crash makes the server read at most those
// and the active one again.
type roller struct {
	b     *jetStream
	drain func(context.Context) error
	tell  atomic.Pointer[func()]
	bytes atomic.Int64 // stored since the server was asked last
	kick  chan struct{}
	done  chan struct{}
}

// stepTime bounds one change of the streams.
const stepTime = 30 * time.Second

func newRoller(b *jetStream, drain func(context.Context) error) *roller {
	r := &roller{b: b, drain: drain, kick: make(chan struct{}, 1), done: make(chan struct{})}
	r.kick <- struct{}{} // there may be something left to do
	return r
}

// stored notes what was written.
func (r *roller) stored(bytes int) {
	if r.bytes.Add(int64(bytes)) > int64(r.b.segments.Bytes/16) {
		select {
		case r.kick <- struct{}{}:
		default:
		}
	}
}

// run works until ctx is done. A failure is said, and the next kick tries again.
func (r *roller) run(ctx context.Context) {
	defer close(r.done)
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
	// A change of streams that has begun is waited for, also when the log is closed: the
	// server is not to be stopped in the middle of it.
	whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), stepTime)
	defer cancel()
	if info.State.Msgs > 0 && (info.State.Bytes >= limit.Bytes || limit.Subjects > 0 && info.State.NumSubjects >= limit.Subjects) {
		if err := r.b.roll(whole, r.drain); err != nil {
			return err
		}
		r.told()
	}
	return r.b.settle(ctx)
}

// told tells those who look on that there is another segment.
func (r *roller) told() {
	if tell := r.tell.Load(); tell != nil {
		(*tell)()
	}
}
