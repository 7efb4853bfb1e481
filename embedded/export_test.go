package embedded

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/tree/keeper"
)

// Scrub looks through all blocks of a store that is in use.
func Scrub(ctx context.Context, t *testing.T, s *Server) {
	t.Helper()
	x := s.examination()
	err := x.examine(true, 0)
	if err != nil || len(x.later) == 0 {
		t.Fatalf("%d blocks: %v", len(x.later), err)
	}
	s.scrub(ctx, x.later)
}

// MaxConsumers is how many consumers a user may have.
const MaxConsumers = maxConsumers

// SetServerVersion plays a server of another version until a test is over.
func SetServerVersion(t *testing.T, version string) {
	before := serverVersion
	serverVersion = version
	t.Cleanup(func() { serverVersion = before })
}

// SyncsAlways reports whether a store's server syncs each message before it acknowledges.
func SyncsAlways(s *Server) bool { return s.nats.JetStreamConfig().SyncAlways }

// NATS is the server that a store runs.
func NATS(s *Server) *server.Server { return s.nats }

// SetForgetAnswers sets for how long servers remember what they were asked, until a test
// is over.
func SetForgetAnswers(t *testing.T, after time.Duration) {
	before := forgetAnswers
	forgetAnswers = after
	t.Cleanup(func() { forgetAnswers = before })
}

// ShowNothing has no append wait for trees until a test is over.
func ShowNothing(t *testing.T) {
	before := keeper.WaitForTrees
	keeper.WaitForTrees = func(*keeper.Trees, context.Context, events.Offset, ...events.Subject) error { return nil }
	t.Cleanup(func() { keeper.WaitForTrees = before })
}

// SetTreeBeat sets how often keepers of trees say that they are at work, until a test is over.
func SetTreeBeat(t *testing.T, every time.Duration) {
	before := keeper.BeatPause
	keeper.BeatPause = every
	t.Cleanup(func() { keeper.BeatPause = before })
}
