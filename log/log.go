package log

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/tallylog/tally/events"
)

// Config of a Log. The zero value works.
type Config struct {
	// Stream names the line of streams: its segments are <Stream>_1, <Stream>_2 ...
	// Default "TALLY".
	Stream string

	// Replicas of a stream that Open creates. Default: 3 in a cluster, else 1.
	Replicas int

	// MinDurability makes Open return a *DurabilityError if acknowledgements promise less.
	MinDurability Durability

	// AckWait bounds the wait for one acknowledgement, also under a context
	// without deadline. Default 15 s.
	AckWait time.Duration

	Observer Observer         // default: no observer
	Logger   *slog.Logger     // default: discard
	Now      func() time.Time // default time.Now
	NewID    func() string    // a fresh UUIDv7; default from package uuid

	// Host is what the process that runs the server, or is attached to it, provides.
	// Package embedded sets it. The zero value suits a client of a server.
	Host Host

	why string // why Durability is not higher
}

func (c Config) withDefaults() Config {
	c.Stream = cmp.Or(c.Stream, "TALLY")
	c.AckWait = cmp.Or(c.AckWait, 15*time.Second)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Observer == nil {
		c.Observer = nobody{}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Host.Found == nil {
		c.Host.Found = func(events.Offset) {}
	}
	if c.Host.Mark == nil {
		c.Host.Mark = func(events.Offset) {}
	}
	if c.NewID == nil {
		c.NewID = newIDs()
	}
	return c
}

// newIDs returns a function that makes ids. It reads random bytes for many ids at once.
func newIDs() func() string {
	var mu sync.Mutex
	random := bufio.NewReader(rand.Reader)
	return func() string {
		mu.Lock()
		defer mu.Unlock()
		return uuid.Must(uuid.NewV7FromReader(random)).String()
	}
}

// Hole is a record that is lost.
type Hole struct {
	Offset  events.Offset `json:"offset"`
	Subject string        `json:"subject,omitempty"` // in NATS form; "": unknown, any subject may have lost it
}

// Log is an event log. It is safe for concurrent use.
type Log struct {
	took    atomic.Int64 // records that readers got
	backend Backend
	js      *jetStream // the backend, if it is a server; else nil
	files   *files     // the backend, if it is the files of a store; else nil
	config  Config
	ids     *idIndex
	recent  *recentIDs // nil: others store too, and the backend recognises young ids
	lasts   lasts
	life    context.Context // until Close
	end     context.CancelFunc
	running sync.WaitGroup // appends between enter and leave
	commit  *committer     // nil: the backend's acknowledgement counts
	roller  *roller        // nil: the log stays in one segment
	owner   *remote        // nil: appends are stored by this log
	safe    horizon        // nil: a stored record is as safe as it gets

	holes holes
	bulk  atomic.Int32 // large series being appended

	waits limit // for acknowledgements

	// doubtful is set when the outcome of a message is unknown: it may have been stored, or may be later.
	doubtful atomic.Bool

	marked atomic.Bool // the log on the server is an unfinished copy, or was moved: see refusal

	recovering sync.Mutex // held during Recover

	mu     sync.Mutex // guards queues and shut
	queues map[events.Subject]queue
	shut   bool
}

// OpenOn opens a log on a backend. The Log closes the backend when it is closed.
func OpenOn(ctx context.Context, b Backend, c Config) (*Log, error) {
	if b == nil {
		panic("log: OpenOn without a backend")
	}
	st, err := b.State(ctx)
	if err != nil {
		return nil, fmt.Errorf("log: open: %w", err)
	}
	l := &Log{
		backend: b,
		config:  c.withDefaults(),
		ids:     newIDIndex(maxIndexed),
		holes:   holes{known: slices.Clone(c.Host.Holes)},
		queues:  make(map[events.Subject]queue),
	}
	if l.config.Host.Owner {
		l.recent = newRecentIDs(l.config.Now(), maxRecentIDs)
	}
	l.js, _ = b.(*jetStream)
	l.files, _ = b.(*files)
	l.life, l.end = context.WithCancel(context.Background())
	if l.config.Host.Sync != nil {
		l.config.Host.Durability = Durable
		if l.config.Host.Owner {
			if err := l.redo(ctx, l.config.Host.Settled, l.publishSoon); err != nil {
				l.end()
				return nil, err
			}
			if st, err = b.State(ctx); err != nil {
				l.end()
				return nil, fmt.Errorf("log: open: %w", err)
			}
		}
		c, err := newCommitter(l.life, l.sync, l.config.Host.Mark, l.config.Observer, st.Last)
		if err != nil {
			l.end()
			return nil, err
		}
		l.commit, l.safe = c, c
	}
	if have := l.config.Host.Durability; have < c.MinDurability {
		l.end()
		return nil, &DurabilityError{Want: c.MinDurability, Have: have, Why: cmp.Or(c.why, "the store does not promise more")}
	}
	if l.js != nil && l.config.Host.Owner && l.config.Host.Segments.Bytes > 0 {
		l.roller = newRoller(l.js, l.drain, l.sound)
		go l.roller.run(l.life)
	}
	return l, nil
}

// sync makes stored messages durable. It loads the active stream after the committer has noted its target: messages
// stored by then are in this stream or in an earlier one, which a Sync covers too.
func (l *Log) sync() error {
	stream := ""
	if l.js != nil {
		stream = l.js.line.Load().active().name
	}
	return l.config.Host.Sync(stream)
}

// drain makes everything durable that was stored.
func (l *Log) drain() error {
	if l.commit == nil {
		return nil
	}
	return l.commit.drain()
}

// sound returns the error of a failed sync, until the log recovers.
func (l *Log) sound() error {
	if l.commit == nil {
		return nil
	}
	return l.commit.failed()
}

// Close waits for the appends under way, then releases what the Log opened.
// Later calls, and follows still running, return ErrUnavailable.
func (l *Log) Close() error {
	l.mu.Lock()
	shut := l.shut
	l.shut = true
	l.mu.Unlock()
	if shut {
		return nil
	}
	l.running.Wait()
	l.end()
	var err error
	if l.roller != nil {
		<-l.roller.done
	}
	if l.commit != nil {
		<-l.commit.done
		err = l.commit.failed()
	}
	if l.owner != nil {
		l.owner.close()
	}
	return errors.Join(err, l.backend.Close())
}

// Recover makes appends work again after a sync failed, or after the server stopped answering because it could not
// write. Appends under way return ErrUnknown. work runs while nothing is being appended, and has to make sure that
// stored messages can be synced again. If it fails, appends are still refused.
func (l *Log) Recover(ctx context.Context, work func() error) error {
	b, ok := l.backend.(recoverable)
	if !ok {
		return work()
	}
	l.recovering.Lock()
	defer l.recovering.Unlock()
	if e := l.era(); e != nil {
		e.end(errEra) // batches under way: their redo records may vanish
	}
	return b.Quiet(func(publish func(context.Context, Publication) (Receipt, error)) error {
		if l.commit != nil {
			l.commit.busy.Lock()
			defer l.commit.busy.Unlock()
		}
		err := work()
		if err == nil && l.commit != nil && l.config.Host.Owner && !l.config.Host.Copy {
			safe, _ := l.commit.durable(ctx)
			err = l.redo(ctx, safe, publish)
		}
		// Records that were read until now may be gone, and a batch may have been incomplete.
		l.lasts.forget()
		l.ids.forget()
		if l.commit == nil || err != nil {
			return err
		}
		st, err := l.backend.State(ctx)
		if err == nil {
			l.commit.revive(st.Last)
		}
		return err
	})
}

// AtRest runs work while nothing is being appended and every append is as durable as its caller asked. Appends wait for
// it, and reads ask again.
func (l *Log) AtRest(ctx context.Context, work func() error) error {
	if l.js == nil {
		return work()
	}
	return l.js.atRest(ctx, l.drain, func(context.Context) error { return work() })
}

func (l *Log) isClosed() bool { return l.life.Err() != nil }

func (l *Log) errClosed(verb string) error {
	return fmt.Errorf("log: %s: %w: the log is closed", verb, ErrUnavailable)
}

// UntilGone returns a context that ends with ctx, when the log is closed, and when the owner through which it appends
// has ended: in the last two cases [context.Cause] is ErrUnavailable. Use it to wait for something that the owner does.
func (l *Log) UntilGone(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stops := []func() bool{context.AfterFunc(l.life, func() { cancel(l.errClosed("wait")) })}
	if l.owner != nil {
		stops = append(stops, context.AfterFunc(l.owner.lost, func() { cancel(errOwnerLost) }))
	}
	return ctx, func() {
		for _, stop := range stops {
			stop()
		}
		cancel(nil)
	}
}

// Stamp sets an event's id and time if they are missing. A producer that may append an event again stamps it first, or
// sets the id itself.
func (l *Log) Stamp(e events.Event) events.Event {
	if e.ID == "" {
		e.ID = l.NewID()
	}
	if e.Time.IsZero() {
		e.Time = l.Now()
	}
	return e
}

// FirstStream is the first stream of a log with the default name. It exists for as long as the log.
const FirstStream = "TALLY_1"

const (
	besides    = 64 << 10  // bytes of a message beside its data: subject and headers
	minPayload = 128 << 10 // the least max_payload that a log accepts of a server
)

// MaxData returns how many bytes of data one event may have in this log. The max_payload of a server that others run
// may be below the bound of package events.
func (l *Log) MaxData() int {
	if l.js == nil {
		return events.MaxData
	}
	return int(min(events.MaxData, l.js.reads.MaxPayload()-besides))
}

// MaxMirrored returns how many bytes of data a record may have that Mirror appends.
func (l *Log) MaxMirrored() int {
	if l.js == nil {
		return events.MaxData
	}
	return int(l.js.reads.MaxPayload() - besides)
}

// Now returns the time by the log's clock.
func (l *Log) Now() time.Time { return l.config.Now() }

// NewID returns a fresh id, for an event or anything else.
func (l *Log) NewID() string { return l.config.NewID() }

// Durability returns the durability of this log's acknowledgements.
func (l *Log) Durability() Durability { return l.config.Host.Durability }

// Head returns the offset of the last record, 0 if the log is empty.
func (l *Log) Head(ctx context.Context) (events.Offset, error) {
	if l.isClosed() {
		return 0, l.errClosed("head")
	}
	st, err := l.backend.State(ctx)
	if err != nil {
		return 0, fmt.Errorf("log: head: %w", err)
	}
	return st.Last, nil
}

// Clock returns the time of the clock that dates records: the storing process's, not this one's. It returns the zero
// time if that is not known.
func (l *Log) Clock(ctx context.Context) (time.Time, error) {
	if l.isClosed() {
		return time.Time{}, l.errClosed("clock")
	}
	st, err := l.backend.State(ctx)
	if err != nil {
		return time.Time{}, fmt.Errorf("log: clock: %w", err)
	}
	return st.Now, nil
}

// Durable returns the durable watermark: everything up to it survives a power cut. A log without a Sync relies on the
// server and returns the head.
func (l *Log) Durable(ctx context.Context) (events.Offset, error) {
	if l.safe == nil {
		return l.Head(ctx)
	}
	return l.safe.durable(ctx)
}

// Last returns the last record of a subject: ErrNotFound if the subject has no record, *events.DamageError if it is
// lost. It waits until the record is durable.
func (l *Log) Last(ctx context.Context, sub events.Subject) (events.Record, error) {
	if err := sub.Validate(); err != nil {
		return events.Record{}, err
	}
	if l.isClosed() {
		return events.Record{}, l.errClosed("last of " + sub.Name())
	}
	e := l.era()
	m, err := l.backend.Last(ctx, sub.NATS())
	if err == nil || isNotFound(err) {
		err = cmp.Or(Noted(ctx, l.lostBehind(sub, m.Offset)), err)
	}
	if isNotFound(err) {
		err = cmp.Or(l.unreadable(ctx, sub), err)
	}
	if err != nil {
		return events.Record{}, fmt.Errorf("log: last of %s: %w", sub.Name(), err)
	}
	if err := errors.Join(l.awaitSafe(ctx, m.Offset, e), l.awaitWhole(ctx, m)); err != nil {
		return events.Record{}, fmt.Errorf("log: last of %s: %w", sub.Name(), err)
	}
	l.took.Add(1)
	return decode(m)
}

// First returns the offset of the first readable record of a subject, or ErrNotFound. It costs less than reading the
// record.
func (l *Log) First(ctx context.Context, sub events.Subject) (events.Offset, error) {
	if err := sub.Validate(); err != nil {
		return 0, err
	}
	if l.isClosed() {
		return 0, l.errClosed("first of " + sub.Name())
	}
	e := l.era()
	m, err := Message{}, errors.ErrUnsupported
	if b, ok := l.backend.(firsts); ok {
		m, err = b.First(ctx, sub.NATS())
	}
	if err == nil {
		err = errors.Join(l.awaitSafe(ctx, m.Offset, e), l.awaitWhole(ctx, m))
	}
	if errors.Is(err, errors.ErrUnsupported) {
		for rec, err := range l.Read(ctx, events.Range{Subject: sub}) {
			if !events.IsDamage(err) {
				return rec.Offset, err
			}
		}
		err = ErrNotFound
	}
	if err != nil {
		return 0, fmt.Errorf("log: first of %s: %w", sub.Name(), err)
	}
	return m.Offset, nil
}

// awaitSafe returns when an offset is durable that was read in an era: a caller must not see an event that can still
// vanish.
func (l *Log) awaitSafe(ctx context.Context, at events.Offset, e *era) error {
	if l.safe == nil {
		return nil
	}
	return l.safe.await(ctx, at, e)
}

// followSafe is awaitSafe for a follower.
func (l *Log) followSafe(ctx context.Context, at events.Offset, e *era) error {
	if l.commit == nil {
		return l.awaitSafe(ctx, at, e)
	}
	return l.commit.follow(ctx, at, e)
}

// era returns the present era; nil without a Sync.
func (l *Log) era() *era {
	if l.commit == nil {
		return nil
	}
	return l.commit.era.Load()
}

// A server that others run shows the messages of an atomic batch while it stores them. Each message carries its number
// in the batch.

// whole returns the end of the last complete append, given the head.
func (l *Log) whole(ctx context.Context, head events.Offset) (events.Offset, error) {
	if l.js == nil || l.safe != nil || head == 0 {
		return head, nil
	}
	m, err := l.backend.Get(ctx, head)
	if isNotFound(err) {
		return head, nil // the record is lost
	}
	return head - events.Offset(m.inAtomic()), err
}

// inAtomic returns the number of a message in its atomic batch, or 0 if it is the last or in none.
func (m Message) inAtomic() uint64 {
	if m.field(headerBatchID) == "" || m.field(headerBatchCommit) != "" {
		return 0
	}
	n, err := strconv.ParseUint(m.field(headerBatchSequence), 10, 64)
	if err != nil || n > uint64(m.Offset) {
		return 0 // another program's header
	}
	return n
}

// awaitWhole returns when the append of a message is complete.
func (l *Log) awaitWhole(ctx context.Context, m Message) error {
	if l.js == nil || l.safe != nil || m.inAtomic() == 0 {
		return nil
	}
	for try := 0; ; try++ {
		if err := pause(ctx, try); err != nil {
			return err
		}
		head, err := l.Head(ctx)
		if err != nil {
			return err
		}
		if whole, err := l.whole(ctx, head); err != nil || whole >= m.Offset {
			return err
		}
	}
}

// RecordsRead counts the records that Read, Record and Last have returned, repeats included. It measures the cost of
// calls on any backend.
func (l *Log) RecordsRead() int64 { return l.took.Load() }

// Record returns the record at an offset: ErrNotFound beyond the ends of the log, *events.DamageError if it cannot be
// read. It waits until the record is durable.
func (l *Log) Record(ctx context.Context, at events.Offset) (events.Record, error) {
	e := l.era()
	rec, err := l.record(ctx, at)
	if err != nil {
		return rec, Noted(ctx, err)
	}
	if err := l.awaitSafe(ctx, at, e); err != nil {
		return events.Record{}, fmt.Errorf("log: record %v: %w", at, err)
	}
	l.took.Add(1)
	return rec, nil
}

// record is Record without the wait for durability.
func (l *Log) record(ctx context.Context, at events.Offset) (events.Record, error) {
	if l.isClosed() {
		return events.Record{}, l.errClosed("record " + at.String())
	}
	m, err := l.backend.Get(ctx, at)
	if errors.Is(err, ErrNotFound) {
		st, serr := l.backend.State(ctx)
		switch {
		case serr != nil:
			err = serr
		case l.holes.has(at):
			return events.Record{}, &events.DamageError{Offset: at}
		case at >= st.First && at <= st.Last && at > 0:
			return events.Record{}, l.lost(at)
		}
	}
	if err != nil {
		return events.Record{}, fmt.Errorf("log: record %v: %w", at, err)
	}
	return decode(m)
}

// SubjectInfo is a subject and how many records it has.
type SubjectInfo struct {
	Subject events.Subject
	Count   uint64
}

// Subjects lists the subjects of a namespace and kind, sorted by namespace, kind and id; "" is every one. It skips
// subjects that are not tally's. If all records of a subject are lost, it is listed with a count of 0, so that opening
// it reports the loss.
func (l *Log) Subjects(ctx context.Context, ns, kind string) iter.Seq2[SubjectInfo, error] {
	return func(yield func(SubjectInfo, error) bool) {
		filter, err := filterOf(events.Range{Namespace: ns, Kind: kind})
		if err == nil && l.isClosed() {
			err = l.errClosed("subjects")
		}
		if err != nil {
			yield(SubjectInfo{}, err)
			return
		}
		counts, err := l.backend.Subjects(ctx, filter)
		if err != nil {
			yield(SubjectInfo{}, fmt.Errorf("log: subjects: %w", err))
			return
		}
		for _, h := range l.holes.reported(0) {
			if _, has := counts[h.Subject]; !has && h.Subject != "" && h.of(filter) {
				counts[h.Subject] = 0
			}
		}
		found := make([]SubjectInfo, 0, len(counts))
		for name, n := range counts {
			if sub, err := events.ParseNATS(name); err == nil {
				found = append(found, SubjectInfo{sub, n})
			}
		}
		slices.SortFunc(found, func(a, b SubjectInfo) int {
			return cmp.Or(cmp.Compare(a.Subject.Namespace, b.Subject.Namespace),
				cmp.Compare(a.Subject.Kind, b.Subject.Kind), cmp.Compare(a.Subject.ID, b.Subject.ID))
		})
		for _, info := range found {
			if !yield(info, nil) {
				return
			}
		}
	}
}

// DecodeStored returns the record of a message that a server stored, by the message's parts. The header is as NATS
// carries it. If the message is not an event, the error is a *events.DamageError.
func DecodeStored(subject, header string, data []byte, at events.Offset, stored time.Time) (events.Record, error) {
	return decode(Message{Subject: subject, wire: header, Data: data, Offset: at, Time: stored})
}

// decode returns the record of a message, or a *events.DamageError if it is not an event.
func decode(m Message) (events.Record, error) {
	e, ok := events.Event{}, false
	if m.wire != "" {
		e, ok = events.DecodeWire(m.Subject, m.wire, m.Data)
	}
	var err error
	if !ok {
		e, err = events.DecodeMessage(m.Subject, m.header(), m.Data)
	}
	if err != nil {
		return events.Record{}, &events.DamageError{Offset: m.Offset, Err: err}
	}
	return events.Record{Event: e, Offset: m.Offset, Recorded: m.recorded()}, nil
}
