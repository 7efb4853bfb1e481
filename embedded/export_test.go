package embedded

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/tree/keeper"
)

// Scrub checks all blocks of a store that is in use.
func Scrub(ctx context.Context, t *testing.T, s *Server) {
	t.Helper()
	x := s.examination()
	err := x.examine(true, 0)
	if err != nil || len(x.later) == 0 {
		t.Fatalf("%d blocks: %v", len(x.later), err)
	}
	s.scrub(ctx, x.later)
}

// MaxConsumers is the number of consumers that a user may have.
const MaxConsumers = maxConsumers

// SetServerVersion pretends another version of the server until the test ends.
func SetServerVersion(t *testing.T, version string) {
	before := serverVersion
	serverVersion = version
	t.Cleanup(func() { serverVersion = before })
}

// SyncsAlways reports whether a store's server syncs each message before it acknowledges.
func SyncsAlways(s *Server) bool { return s.nats.JetStreamConfig().SyncAlways }

// NATS returns the server that a store runs.
func NATS(s *Server) *server.Server { return s.nats }

// SetForgetAnswers sets how long servers remember requests, until the test ends.
func SetForgetAnswers(t *testing.T, after time.Duration) {
	before := forgetAnswers
	forgetAnswers = after
	t.Cleanup(func() { forgetAnswers = before })
}

// ShowNothing makes appends not wait for trees until the test ends.
func ShowNothing(t *testing.T) {
	before := keeper.WaitForTrees
	keeper.WaitForTrees = func(*keeper.Trees, context.Context, events.Offset, ...events.Subject) error { return nil }
	t.Cleanup(func() { keeper.WaitForTrees = before })
}

// SetTreeBeat sets how often keepers of trees report that they are at work, until the test ends.
func SetTreeBeat(t *testing.T, every time.Duration) {
	before := keeper.BeatPause
	keeper.BeatPause = every
	t.Cleanup(func() { keeper.BeatPause = before })
}
