package log

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/nats/natswire"
)

// Open opens the log on a JetStream server. If the server has no stream of the log yet, Open creates the first. It
// refuses a stream that could lose or rewrite records with a *ConfigError. The caller closes the connection.
func Open(ctx context.Context, nc *nats.Conn, c Config) (*Log, error) {
	if nc == nil {
		panic("log: Open without a connection")
	}
	c = c.withDefaults()
	c.Host.Shared = c.Host.Shared || !c.Host.Owner && !c.Host.Via
	if c.Host.Via {
		return openVia(ctx, nc, c)
	}
	b, err := openJetStream(ctx, nc, c)
	if err != nil {
		return nil, err
	}
	if !c.Host.Owner && c.Host.Durability == Buffered {
		c.Host.Durability, c.why = b.worth(ctx, c)
	}
	l, err := OpenOn(ctx, b, c)
	if err == nil && !c.Host.Owner {
		l.marked.Store(refusalOf(b.line.Load().segments[0].stream.CachedInfo().Config) != nil)
	}
	return l, err
}

// openVia opens the log of a store that another process owns.
func openVia(ctx context.Context, nc *nats.Conn, c Config) (l *Log, err error) {
	owner := newRemote(nc, cmp.Or(c.Host.Reads, nc), c.AckWait)
	defer func() {
		if err != nil {
			owner.close()
		}
	}()
	b, err := openJetStream(ctx, nc, c)
	if err != nil {
		return nil, err
	}
	if l, err = OpenOn(ctx, b, c); err != nil {
		return nil, err
	}
	if err := owner.listen(b); err != nil {
		return nil, errors.Join(fmt.Errorf("log: open: %w", err), l.Close())
	}
	l.owner, l.safe = owner, owner
	return l, nil
}

func openJetStream(ctx context.Context, nc *nats.Conn, c Config) (*jetStream, error) {
	b := &jetStream{writes: connSender{nc, c.AckWait}, reads: cmp.Or(c.Host.Reads, nc), name: c.Stream, owner: c.Host.Owner, via: c.Host.Via, replicas: c.Replicas, segments: c.Host.Segments, scans: c.Host.Scans, logger: c.Logger}
	err := checkServer(b.reads.ConnectedServerVersion())
	if err != nil {
		return nil, err
	}
	if payload := b.reads.MaxPayload(); payload < minPayload {
		return nil, &ConfigError{Stream: c.Stream, Field: "the server's max_payload", Have: fmt.Sprint(payload), Need: fmt.Sprint(minPayload, " or more")}
	}
	if b.js, err = jetstream.New(b.reads); err != nil {
		return nil, fmt.Errorf("log: open: %w", err)
	}
	if c.Host.Appends.Conn != nil {
		if b.own, err = dialPublisher(c.Host.Appends, c.AckWait); err != nil {
			return nil, fmt.Errorf("log: open: %w", err)
		}
		b.writes = b.own
	}
	if err := b.open(ctx); err != nil {
		if b.own != nil {
			b.own.conn.Close()
		}
		if _, refused := errors.AsType[*ConfigError](err); refused {
			return nil, err
		}
		return nil, fmt.Errorf("log: open %s: %w", b.name, err)
	}
	return b, nil
}

// jetStream is the Backend on a JetStream server. Appends have a connection of their own, so that large reads do not
// delay them.
type jetStream struct {
	writes   sender
	own      *publisher // the connection of writes, if it is not the client's
	reads    *nats.Conn
	scans    func() (Login, error) // nil: large reads use reads too
	js       jetstream.JetStream
	name     string // of the line: its segments are <name>_<n>
	owner    bool   // nobody else writes: this process may begin segments
	via      bool   // an owner writes: this process only reads
	replicas int    // of new streams; 0: as many as are safe
	segments Segments
	logger   *slog.Logger

	line     atomic.Pointer[line]
	changing sync.Mutex // held while the line changes

	// shown is the highest offset that a cluster returned to this process. It stays 0 with a single server.
	shown atomic.Uint64

	// appending is held for reading by publications, and for writing while the next segment begins: no message is
	// stored in between.
	appending sync.RWMutex

	// half is set while one segment is closed and the next does not exist yet.
	half atomic.Bool
}

var _ Backend = (*jetStream)(nil)

// ownerWait is how long a process that only reads waits for the owner to finish beginning a segment.
const ownerWait = 5 * time.Second

// open loads or begins the line, and completes a segment whose beginning was interrupted.
func (b *jetStream) open(ctx context.Context) error {
	found, err := b.find(ctx, b.via)
	if err != nil {
		return err
	}
	if len(found) == 0 && b.via {
		return fmt.Errorf("%w: the owner's server has no stream of the log", ErrUnavailable)
	}
	if len(found) == 0 {
		s, err := b.create(ctx, 1, b.segments.Above+1)
		if err != nil {
			return err
		}
		b.use([]*segment{s})
		return nil
	}
	b.use(found)
	for _, s := range found {
		if err := checkStream(s.stream.CachedInfo().Config); err != nil {
			return err
		}
	}
	active := found[len(found)-1]
	b.shortenWindow(ctx, active)
	switch {
	case b.owner && (active.closed || b.segments.Above > events.Offset(active.stream.CachedInfo().State.LastSeq)):
		return b.begin(ctx)
	case active.closed:
		return b.awaitNext(ctx)
	}
	return nil
}

// shortenWindow sets the owner's window on the active segment of an earlier version. If that fails, the server only
// remembers more ids than it needs to.
func (b *jetStream) shortenWindow(ctx context.Context, s *segment) {
	cfg := s.stream.CachedInfo().Config
	if !b.owner || s.closed || cfg.Duplicates <= ownerWindow {
		return
	}
	cfg.Duplicates = ownerWindow
	if _, err := b.js.UpdateStream(ctx, cfg); err != nil {
		b.logger.Warn("the server remembers ids for longer than it needs to", "stream", s.name, "error", err)
	}
}

// find loads the line. With wait it waits until the line is complete: an owner's server may be opening its streams.
func (b *jetStream) find(ctx context.Context, wait bool) ([]*segment, error) {
	began := time.Now()
	for try := 1; ; try++ {
		found, err := b.load(ctx)
		_, some := errors.AsType[*ConfigError](err)
		switch {
		case !wait || err == nil && len(found) > 0 || err != nil && !some || time.Since(began) > ownerWait:
			return found, err
		}
		if err := pause(ctx, try); err != nil {
			return nil, err
		}
	}
}

// awaitNext waits for the owner to begin the segment after the one that it closed.
func (b *jetStream) awaitNext(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, ownerWait)
	defer cancel()
	for b.line.Load().active().closed {
		if err := pause(ctx, 6); err != nil {
			return fmt.Errorf("%w: the last segment is closed, and its owner did not begin the next one within %v", ErrUnavailable, ownerWait)
		}
		if err := b.refresh(ctx); err != nil {
			return err
		}
	}
	return nil
}

// create creates the n-th stream of the line. Its first offset is first.
func (b *jetStream) create(ctx context.Context, n int, first events.Offset) (*segment, error) {
	cfg := segmentConfig(b.name, n, first)
	if b.owner {
		cfg.Duplicates = ownerWindow
	}
	switch {
	case b.replicas > 0:
		cfg.Replicas = b.replicas
	case !b.owner:
		cfg.Replicas = 3
	}
	stream, err := b.js.CreateStream(ctx, cfg)
	if api, ok := errors.AsType[*jetstream.APIError](err); ok && api.ErrorCode == codeNoReplicas && b.replicas == 0 {
		cfg.Replicas = 1
		stream, err = b.js.CreateStream(ctx, cfg)
	}
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another process was faster
		stream, err = b.js.Stream(ctx, segmentName(b.name, n))
	}
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", segmentName(b.name, n), apiError(err))
	}
	s := b.newSegment(n, stream)
	if b.owner && b.segments.Dir != "" && stream.CachedInfo().State.Msgs == 0 {
		s.written.Store(newWritten())
	}
	if s.subjects != nil && stream.CachedInfo().State.Msgs == 0 {
		s.subjects.listed(nil)
	}
	return s, checkStream(stream.CachedInfo().Config)
}

// Publish implements Backend.
func (b *jetStream) Publish(ctx context.Context, p Publication) (Receipt, error) {
	if b.half.Load() {
		if err := b.finish(ctx); err != nil {
			return Receipt{}, fmt.Errorf("%w: %v", ErrUnavailable, err)
		}
	}
	b.appending.RLock()
	defer b.appending.RUnlock()
	return b.put(ctx, p)
}

// put is Publish while no segment is begun.
func (b *jetStream) put(ctx context.Context, p Publication) (Receipt, error) {
	l := b.line.Load()
	s := l.active()
	if p.Segment != 0 && p.Segment != s.n {
		return Receipt{}, fmt.Errorf("%w: the log began another segment", ErrBusy)
	}
	exact, err := b.exactIn(ctx, l, p)
	if err != nil {
		return Receipt{}, err
	}
	s.expects(p)
	receipt, err := b.publish(ctx, s, exact)
	s.note(p, receipt, err)
	if s.replicated {
		b.saw(receipt.Last)
	}
	if conflict, ok := errors.AsType[*ConflictError](err); ok {
		if len(p.Writes) > 1 {
			return Receipt{}, ErrConflict // the server does not say of which subject
		}
		w := p.Writes[0]
		conflict.Subject, _ = events.ParseNATS(w.Subject)
		conflict.Want = w.Expect.At
		if conflict.Have == 0 && len(l.segments) > 1 {
			var lookErr error
			if conflict.Have, lookErr = b.lastBelow(ctx, l, w.Subject); lookErr != nil {
				return Receipt{}, lookErr
			}
		}
	}
	if errors.Is(err, errOtherStream) {
		// Others carry on the line: the next attempt is for the segment that they write to now.
		if err := b.refresh(ctx); err != nil {
			return Receipt{}, err
		}
		return Receipt{}, fmt.Errorf("%w: the log began another segment", ErrBusy)
	}
	return receipt, err
}

// Quiet implements recoverable.
func (b *jetStream) Quiet(work func(publish func(context.Context, Publication) (Receipt, error)) error) error {
	if b.own != nil {
		b.own.giveUp(fmt.Errorf("%w: the server could not write", ErrUnknown))
	}
	b.appending.Lock()
	defer b.appending.Unlock()
	b.line.Load().active().written.Store(nil) // a part of it may be gone
	return work(b.put)
}

// exactIn returns a publication with the expectations for the active segment. If a subject's last message is in an
// older segment, the active one must have none. That it is the last message of the older segments is checked here,
// where nothing changes any more.
func (b *jetStream) exactIn(ctx context.Context, l *line, p Publication) (Publication, error) {
	copied := false
	for i, w := range p.Writes {
		if !w.Expect.Set || len(l.segments) == 1 || w.Expect.At >= l.active().first {
			continue
		}
		have, err := b.lastBelow(ctx, l, w.Subject)
		if err != nil {
			return p, err
		}
		if have != w.Expect.At {
			sub, _ := events.ParseNATS(w.Subject)
			return p, &ConflictError{Subject: sub, Want: w.Expect.At, Have: have}
		}
		if !copied {
			p.Writes, copied = slices.Clone(p.Writes), true // the caller may need its own again
		}
		p.Writes[i].Expect.At = 0
	}
	return p, nil
}

func (b *jetStream) publish(ctx context.Context, s *segment, p Publication) (Receipt, error) {
	if len(p.Writes) > 1 || len(p.Writes[0].Messages) > 1 {
		return b.publishAtomic(ctx, s, p)
	}
	w := p.Writes[0]
	ack, err := b.writes.request(ctx, message(s, w.Subject, w.Messages[0], w.Expect))
	return Receipt{Last: events.Offset(ack.Sequence), Duplicate: ack.Duplicate}, err
}

// PublishEach implements pipelined.
func (b *jetStream) PublishEach(ctx context.Context, list []Publication) ([]Receipt, error) {
	receipts := make([]Receipt, len(list))
	if b.own == nil || b.half.Load() {
		for i, p := range list {
			var err error
			if receipts[i], err = b.Publish(ctx, p); err != nil {
				return nil, err
			}
		}
		return receipts, nil
	}
	b.appending.RLock()
	defer b.appending.RUnlock()
	s := b.line.Load().active()
	messages := make([]natswire.Publication, len(list))
	for i, p := range list {
		s.expects(p)
		messages[i] = message(s, p.Writes[0].Subject, p.Writes[0].Messages[0], Exactly{})
	}
	acks, err := b.own.requests(ctx, messages)
	for i, p := range list {
		failed := err
		if acks != nil && acks[i].Sequence > 0 {
			receipts[i], failed = Receipt{Last: events.Offset(acks[i].Sequence), Duplicate: acks[i].Duplicate}, nil
		}
		s.note(p, receipts[i], failed)
	}
	return receipts, err
}

// Segment returns the number of the segment that is written to, and when it began: Publish does not recognise ids that
// were stored before. The time is zero for the first segment.
func (b *jetStream) Segment() (n int, begun time.Time) {
	l := b.line.Load()
	if len(l.segments) > 1 {
		begun = l.active().made
	}
	return l.active().n, begun
}

// Get implements Backend.
func (b *jetStream) Get(ctx context.Context, at events.Offset) (Message, error) {
	if at == 0 {
		return Message{}, ErrNotFound
	}
	for {
		l := b.line.Load()
		s := l.segments[l.indexOf(at)]
		m, err := b.get(ctx, s, at)
		if !errors.Is(err, ErrNotFound) || s.last != 0 || b.owner {
			return m, err
		}
		// The owner may have begun a segment since this process last loaded the line.
		info, infoErr := s.info(ctx)
		if infoErr != nil {
			return Message{}, infoErr
		}
		if again, staleErr := b.stale(ctx, s, info.Config); !again || staleErr != nil {
			return m, cmp.Or(staleErr, err)
		}
	}
}

// Last implements Backend.
func (b *jetStream) Last(ctx context.Context, subject string) (Message, error) {
	l := b.line.Load()
	if !b.owner {
		if _, err := b.caughtUp(ctx); err != nil { // reloads the line if necessary
			return Message{}, err
		}
		l = b.line.Load()
	}
	for _, s := range slices.Backward(l.segments) {
		m, err := b.lastOf(ctx, s, subject)
		if !errors.Is(err, ErrNotFound) {
			return m, err
		}
	}
	return Message{}, ErrNotFound
}

// First implements firsts.
func (b *jetStream) First(ctx context.Context, subject string) (Message, error) {
	if !b.owner {
		if _, err := b.caughtUp(ctx); err != nil {
			return Message{}, err
		}
	}
	for _, s := range b.line.Load().segments {
		if _, there, known := s.find(subject); known && !there {
			continue
		}
		if s.replicated {
			return Message{}, errors.ErrUnsupported // the server that answers may be behind
		}
		m, err := rawMessage(ask(ctx, func(ctx context.Context) (*jetstream.RawStreamMsg, error) {
			return s.stream.GetMsg(ctx, uint64(max(s.first, 1)), jetstream.WithGetMsgSubject(subject))
		}))
		if !errors.Is(err, ErrNotFound) {
			return m, err
		}
	}
	return Message{}, ErrNotFound
}

// lastOf returns the last message of a subject in a segment.
func (b *jetStream) lastOf(ctx context.Context, s *segment, subject string) (Message, error) {
	e, there, known := s.find(subject)
	switch {
	case known && !there, !known && s.lacks(subject):
		return Message{}, ErrNotFound
	case known:
		return b.get(ctx, s, events.Offset(e.Last))
	case s.replicated:
		m, err := b.atLeader(ctx, s.name, leaderQuery{Last: subject})
		b.saw(m.Offset)
		return m, err
	}
	return rawMessage(ask(ctx, func(ctx context.Context) (*jetstream.RawStreamMsg, error) {
		return s.stream.GetLastMsgForSubject(ctx, subject)
	}))
}

func (b *jetStream) get(ctx context.Context, s *segment, at events.Offset) (Message, error) {
	if s.replicated {
		return b.getAtLeader(ctx, s, at)
	}
	return rawMessage(ask(ctx, func(ctx context.Context) (*jetstream.RawStreamMsg, error) { return s.stream.GetMsg(ctx, uint64(at)) }))
}

func (s *segment) info(ctx context.Context, opts ...jetstream.StreamInfoOpt) (*jetstream.StreamInfo, error) {
	return ask(ctx, func(ctx context.Context) (*jetstream.StreamInfo, error) { return s.stream.Info(ctx, opts...) })
}

func rawMessage(m *jetstream.RawStreamMsg, err error) (Message, error) {
	if err != nil {
		return Message{}, err
	}
	return Message{Subject: m.Subject, Header: m.Header, Data: m.Data, Offset: events.Offset(m.Sequence), Time: m.Time}, nil
}

// State implements Backend.
func (b *jetStream) State(ctx context.Context) (State, error) {
	info, err := b.caughtUp(ctx)
	if err != nil {
		return State{}, err
	}
	if info.State.LastSeq == 0 {
		return State{Now: info.TimeStamp}, nil
	}
	if b.line.Load().active().replicated {
		b.saw(events.Offset(info.State.LastSeq))
	}
	first := b.line.Load().segments[0].first
	return State{First: first, Last: max(events.Offset(info.State.LastSeq), first-1), Now: info.TimeStamp}, nil
}

// Subjects implements Backend.
func (b *jetStream) Subjects(ctx context.Context, filter string) (map[string]uint64, error) {
	if _, err := b.info(ctx); err != nil { // reloads the line if necessary
		return nil, err
	}
	all := make(map[string]uint64)
	for _, s := range b.line.Load().segments {
		info, err := s.info(ctx, jetstream.WithSubjectFilter(filter))
		if err != nil {
			return nil, err
		}
		for name, n := range info.State.Subjects {
			all[name] += n
		}
	}
	return all, nil
}

// info returns the server's information about the segment that is written to.
func (b *jetStream) info(ctx context.Context) (*jetstream.StreamInfo, error) {
	for {
		if b.reads.IsClosed() {
			return nil, errHungUp
		}
		s := b.line.Load().active()
		info, err := s.info(ctx)
		if err != nil {
			return nil, err
		}
		if again, err := b.stale(ctx, s, info.Config); !again || err != nil {
			return info, err
		}
	}
}

// Close implements Backend. The caller closes the client's connections.
func (b *jetStream) Close() error {
	var errs []error
	if b.own != nil {
		b.own.conn.Close()
	}
	for _, s := range b.line.Load().segments {
		if x := s.index.Swap(nil); x != nil {
			errs = append(errs, x.Close())
		}
	}
	return errors.Join(errs...)
}
