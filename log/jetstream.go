package log

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tallylog/tally/events"
)

// Open opens the log on a JetStream server, and creates its stream there if there
// is none. A stream that could lose or rewrite records is refused with a
// *ConfigError. The connection stays the caller's.
func Open(ctx context.Context, nc *nats.Conn, c Config) (*Log, error) {
	if nc == nil {
		panic("log: Open without a connection")
	}
	c = c.withDefaults()
	b, err := openJetStream(ctx, nc, c)
	if err != nil {
		return nil, err
	}
	if b.active.CachedInfo().Config.Replicas >= 3 && c.Durability == Buffered {
		c.Durability = Replicated
	}
	l, err := OpenOn(ctx, b, c)
	if err != nil || !c.Via {
		return l, err
	}
	if l.owner, err = newRemote(nc, c.AckWait); err != nil {
		return nil, errors.Join(fmt.Errorf("log: open: %w", err), l.Close())
	}
	l.safe = l.owner
	return l, nil
}

func openJetStream(ctx context.Context, nc *nats.Conn, c Config) (*jetStream, error) {
	b := &jetStream{writes: nc, reads: cmp.Or(c.Reads, nc), line: c.Stream}
	var err error
	if b.js, err = jetstream.New(b.reads); err != nil {
		return nil, fmt.Errorf("log: open: %w", err)
	}
	b.active, err = b.findSegment(ctx)
	return b, err
}

// jetStream is the Backend on a JetStream server. Appends have a connection of
// their own, so that large reads do not stand in their way.
type jetStream struct {
	writes, reads *nats.Conn
	js            jetstream.JetStream
	line          string           // of streams: segments are <line>_<n>
	active        jetstream.Stream // the segment that is written to
}

var _ Backend = (*jetStream)(nil)

// findSegment resolves the active segment of the line: the last one there is.
func (b *jetStream) findSegment(ctx context.Context) (jetstream.Stream, error) {
	var found []int
	names := b.js.StreamNames(ctx)
	for name := range names.Name() {
		if n, ok := segmentNumber(b.line, name); ok {
			found = append(found, n)
		}
	}
	if err := names.Err(); err != nil {
		return nil, fmt.Errorf("log: open %s: %w", b.line, apiError(err))
	}
	slices.Sort(found)
	switch {
	case len(found) == 0:
		return b.createSegment(ctx, 1)
	case len(found) > 1 || found[0] != 1:
		return nil, &ConfigError{Stream: b.line, Field: "segments", Have: fmt.Sprint(found), Need: "[1]"}
	}
	s, err := b.js.Stream(ctx, segmentName(b.line, found[len(found)-1]))
	if err != nil {
		return nil, fmt.Errorf("log: open %s: %w", b.line, apiError(err))
	}
	return s, checkStream(s.CachedInfo().Config)
}

func (b *jetStream) createSegment(ctx context.Context, n int) (jetstream.Stream, error) {
	s, err := b.js.CreateStream(ctx, segmentConfig(b.line, n))
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // somebody else was faster
		s, err = b.js.Stream(ctx, segmentName(b.line, n))
	}
	if err != nil {
		return nil, fmt.Errorf("log: create %s: %w", segmentName(b.line, n), apiError(err))
	}
	return s, checkStream(s.CachedInfo().Config)
}

func segmentName(line string, n int) string { return line + "_" + strconv.Itoa(n) }

func segmentNumber(line, name string) (int, bool) {
	digits, ok := strings.CutPrefix(name, line+"_")
	n, err := strconv.Atoi(digits)
	return n, ok && err == nil && n > 0 && segmentName(line, n) == name
}

// Headers by which a publisher tells the server what it wants.
const (
	headerMsgID       = "Nats-Msg-Id"
	headerStream      = "Nats-Expected-Stream"
	headerLastSubject = "Nats-Expected-Last-Subject-Sequence"
)

// message makes the NATS message of one outgoing one.
func (b *jetStream) message(subject string, out Outgoing, exact Exactly) *nats.Msg {
	h := make(nats.Header, len(out.Header)+6)
	maps.Copy(h, out.Header)
	h[headerMsgID] = []string{out.ID}
	h[headerStream] = []string{b.active.CachedInfo().Config.Name}
	if exact.Set {
		h[headerLastSubject] = []string{strconv.FormatUint(uint64(exact.At), 10)}
	}
	return &nats.Msg{Subject: subject, Header: h, Data: out.Data}
}

// Publish implements Backend.
func (b *jetStream) Publish(ctx context.Context, p Publication) (Receipt, error) {
	if b.writes.IsClosed() {
		return Receipt{}, fmt.Errorf("%w: the connection is closed", ErrUnavailable)
	}
	if len(p.Messages) > 1 {
		return b.publishBatch(ctx, p)
	}
	ack, err := b.request(ctx, b.message(p.Subject, p.Messages[0], p.Expect))
	if err != nil {
		return Receipt{}, withSubject(err, p)
	}
	return Receipt{Last: events.Offset(ack.Sequence), Duplicate: ack.Duplicate}, nil
}

// withSubject fills in what the server's answer to a publication does not say.
func withSubject(err error, p Publication) error {
	if conflict, ok := errors.AsType[*ConflictError](err); ok {
		conflict.Subject, _ = events.ParseNATS(p.Subject)
		conflict.Want = p.Expect.At
	}
	return err
}

// Get implements Backend.
func (b *jetStream) Get(ctx context.Context, at events.Offset) (Message, error) {
	if at == 0 {
		return Message{}, ErrNotFound
	}
	m, err := b.active.GetMsg(ctx, uint64(at))
	return rawMessage(m, err)
}

// Last implements Backend.
func (b *jetStream) Last(ctx context.Context, subject string) (Message, error) {
	m, err := b.active.GetLastMsgForSubject(ctx, subject)
	return rawMessage(m, err)
}

func rawMessage(m *jetstream.RawStreamMsg, err error) (Message, error) {
	if err != nil {
		return Message{}, apiError(err)
	}
	return Message{Subject: m.Subject, Header: m.Header, Data: m.Data, Offset: events.Offset(m.Sequence), Time: m.Time}, nil
}

// State implements Backend.
func (b *jetStream) State(ctx context.Context) (State, error) {
	info, err := b.info(ctx)
	if err != nil || info.State.LastSeq == 0 {
		return State{}, err
	}
	return State{First: events.Offset(info.State.FirstSeq), Last: events.Offset(info.State.LastSeq)}, nil
}

// Subjects implements Backend.
func (b *jetStream) Subjects(ctx context.Context, filter string) (map[string]uint64, error) {
	info, err := b.info(ctx, jetstream.WithSubjectFilter(filter))
	if err != nil {
		return nil, err
	}
	return info.State.Subjects, nil
}

// info asks the server about the active segment.
func (b *jetStream) info(ctx context.Context, opts ...jetstream.StreamInfoOpt) (*jetstream.StreamInfo, error) {
	if b.reads.IsClosed() {
		return nil, fmt.Errorf("%w: the connection is closed", ErrUnavailable)
	}
	info, err := b.active.Info(ctx, opts...)
	if err != nil {
		return nil, apiError(err)
	}
	return info, nil
}

// Close implements Backend. The connections are not its own.
func (b *jetStream) Close() error { return nil }
