package log

import (
	"context"
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

// AppendBehind appends like the request after another one in a series. before is the error of that request, nil if it
// was stored.
func (l *Log) AppendBehind(ctx context.Context, before error, sub events.Subject, evs ...events.Event) *Pending {
	k := &link{known: make(chan struct{})}
	k.settle(before)
	return l.appendAsync(ctx, sub, Any, false, evs, &link{before: k, known: make(chan struct{})})
}

// WireCodes are the codes of errors on the wire.
func WireCodes() []string {
	return []string{wireInvalid, wireTooLarge, wireQuota, wireConflict, wirePartial, wireGap, wireOutOfOrder, wireUnknown, wireAborted, wireFull, wireUnavailable, wirePersonal, wireDamaged, wireInternal}
}

// OverTheWire returns the code of an error on the wire, and the error that the client gets.
func OverTheWire(err error, sub events.Subject) (code string, after error) {
	w := wireErrorOf(err)
	return w.Code, w.errorOf(sub)
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
