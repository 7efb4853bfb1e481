package embedded

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/erasure"
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

// Erase carries out a plan on a store, and calls fold for its snapshots and views.
func Erase(ctx context.Context, s *Server, p erasure.Plan, fold func(ctx context.Context, subjects []events.Subject) error) error {
	return (&eraser{s: s, fold: fold}).erase(ctx, p)
}

// FinishErasure does what an eraser leaves to a later owner.
func FinishErasure(ctx context.Context, s *Server) error {
	e := &eraser{s: s, fold: func(context.Context, []events.Subject) error { return nil }}
	return e.resume(ctx)
}

// SetEraseStep calls step before each step of an erasure until the test ends.
func SetEraseStep(t *testing.T, step func(name string) error) {
	before := eraseStep
	eraseStep = step
	t.Cleanup(func() { eraseStep = before })
}

// SetReserve changes the space that a store leaves free.
func SetReserve(s *Server, bytes uint64) {
	r := s.health.room
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reserve, r.asked = bytes, time.Time{}
}

// EraseThrough carries out a plan through the process that owns the store.
func EraseThrough(ctx context.Context, a *Attached, dir string, p erasure.Plan) error {
	return (&eraseRequester{dir: dir, a: a}).erase(ctx, p)
}

// MayErase reports whether a user may ask the owner of a store to erase.
func MayErase(user string) bool {
	return slices.ContainsFunc(servicesFor(user), func(s service) bool { return s.subject == eraseSubject })
}
