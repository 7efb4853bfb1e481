package log

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/tallylog/tally/events"
)

// NewJetStream returns the backend alone, for tests.
func NewJetStream(ctx context.Context, nc *nats.Conn) (Backend, error) {
	return openJetStream(ctx, nc, Config{}.withDefaults())
}

// Sending returns a backend that stores through a connection, as a log on a cluster that others run does, and reads
// from another backend.
func Sending(reads Backend, nc *nats.Conn, wait time.Duration) Backend {
	b := &jetStream{writes: connSender{nc, wait}, reads: nc, name: "TALLY"}
	b.use([]*segment{{n: 1, name: FirstStream, first: 1, replicated: true}})
	return sending{reads, b}
}

type sending struct {
	Backend
	writes *jetStream
}

func (s sending) Publish(ctx context.Context, p Publication) (Receipt, error) {
	return s.writes.Publish(ctx, p)
}

// MisplaceIDs makes the index of a subject return one record for every id, as if all ids had the same hash.
func (l *Log) MisplaceIDs(sub events.Subject, at events.Offset) {
	ids := l.ids.of(sub)
	for i := range ids.offsets.few {
		ids.offsets.few[i].at = at
	}
	for h := range ids.offsets.many {
		ids.offsets.many[h] = at
	}
}

// IsNew reports whether the log is sure that a subject has no record.
func (l *Log) IsNew(ctx context.Context, sub events.Subject) (bool, error) {
	return l.isNew(ctx, sub.NATS())
}

// Few returns the offsets of a subject's records behind the backend's index, if there are at most n.
func (l *Log) Few(ctx context.Context, sub events.Subject, n int) (from events.Offset, list []events.Offset, ok bool, err error) {
	from = l.backend.(indexed).Indexed()
	messages, ok, err := l.backend.(shortSubjects).Few(ctx, sub.NATS(), from, n)
	for _, m := range messages {
		list = append(list, m.Offset)
	}
	return from, list, ok, err
}

// ForgetIDs makes the log forget the identities and last offsets that it remembers.
func (l *Log) ForgetIDs() {
	l.ids.forget()
	l.lasts.forget()
}

// ListSubjects asks a server for all subjects of a stream, and returns a function that reports whether a subject may be
// one of them.
func ListSubjects(ctx context.Context, nc *nats.Conn, stream string) (mayHave func(subject string) bool, err error) {
	b, s := &jetStream{reads: nc}, &segment{name: stream, subjects: newSubjectFilter()}
	err = b.listSubjects(ctx, s)
	return s.subjects.mayHave, err
}

// AppendBehind appends like the request after another one in a series. before is the error of that request, nil if it
// was stored.
func (l *Log) AppendBehind(ctx context.Context, before error, sub events.Subject, evs ...events.Event) *Pending {
	k := &link{known: make(chan struct{})}
	k.settle(before)
	return l.appendAsync(ctx, sub, Any, false, evs, &link{before: k, known: make(chan struct{})})
}

// WireCodes are the codes of failures, each with the status of an HTTP answer.
func WireCodes() (list [][2]string) {
	for _, f := range failures {
		list = append(list, [2]string{f.code, strconv.Itoa(f.status)})
	}
	return list
}

// OverTheWire returns the error that a client gets for a failure.
func OverTheWire(f *Failure, sub events.Subject) error { return f.errorOf(sub) }

// OutOfTurn returns the error of a numbered request that came too early, or too late.
func OutOfTurn(gap bool) error {
	if gap {
		return &orderError{number: 3, next: 2}
	}
	return &orderError{number: 2, next: 3}
}

// Replicate makes the log treat its server as one of a cluster.
func (l *Log) Replicate() { l.backend.(*jetStream).line.Load().active().replicated = true }

// SetAway sets how long the log waits for a server that does not answer, until the end of a test.
func SetAway(t *testing.T, d time.Duration) {
	before := away
	away = d
	t.Cleanup(func() { away = before })
}

// SetCourtesy sets how long a follower waits for a producer to start a sync, until the end of a test.
func SetCourtesy(t *testing.T, d time.Duration) {
	before := courtesy
	courtesy = d
	t.Cleanup(func() { courtesy = before })
}

// Take passes a request to the service, like the library of micro services.
func (s *Service) Take(req micro.Request) { s.append(req) }

// CheckServer is Open's check of a server's version.
func CheckServer(version string) error { return checkServer(version) }

// Roll begins a segment, as another process does that writes to the server.
func Roll(ctx context.Context, b Backend) error {
	js := b.(*jetStream)
	if err := js.refresh(ctx); err != nil {
		return err
	}
	js.appending.Lock()
	defer js.appending.Unlock()
	return js.begin(ctx)
}

// Abandon ends the log without waiting for the appends under way, after a test that failed.
func (l *Log) Abandon() { l.end() }

// KnownSegments returns how many segments a process knows.
func KnownSegments(l *Log) int { return len(l.js.line.Load().segments) }
