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

// MisplaceIDs makes the index of a subject point at one record for every id, as if
// all had the same hash.
func (l *Log) MisplaceIDs(sub events.Subject, at events.Offset) {
	ids := l.ids.of(sub)
	for h := range ids.offsets {
		ids.offsets[h] = at
	}
}

// AppendBehind appends as the request behind one that was stored, or failed, in a
// series.
func (l *Log) AppendBehind(ctx context.Context, before error, sub events.Subject, evs ...events.Event) *Pending {
	k := &link{known: make(chan struct{})}
	k.settle(before)
	return l.appendAsync(ctx, sub, Any, false, evs, &link{before: k, known: make(chan struct{})})
}

// WireCodes are the codes of errors on the wire.
func WireCodes() []string {
	return []string{wireInvalid, wireTooLarge, wireQuota, wireConflict, wirePartial, wireGap, wireOutOfOrder, wireUnknown, wireAborted, wireFull, wireUnavailable, wirePersonal, wireDamaged, wireInternal}
}

// OverTheWire returns an error as it is after its way to a client.
func OverTheWire(err error, sub events.Subject) (code string, after error) {
	w := wireErrorOf(err)
	return w.Code, w.errorOf(sub)
}

// Replicate has the log take its server for one of a cluster.
func (l *Log) Replicate() { l.backend.(*jetStream).line.Load().active().replicated = true }

// SetAway sets how long a server that does not answer is waited for, until a test is over.
func SetAway(t *testing.T, d time.Duration) {
	before := away
	away = d
	t.Cleanup(func() { away = before })
}

// SetCourtesy sets how long a follower lets producers begin a sync, until a test is over.
func SetCourtesy(t *testing.T, d time.Duration) {
	before := courtesy
	courtesy = d
	t.Cleanup(func() { courtesy = before })
}

// Take hands the service a request, as the library of micro services does.
func (s *Service) Take(req micro.Request) { s.append(req) }

// CheckServer is Open's check of a server's version.
func CheckServer(version string) error { return checkServer(version) }
