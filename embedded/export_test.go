package embedded

import (
	"context"
	"testing"
)

// Scrub looks through all blocks of a store that is in use.
func Scrub(ctx context.Context, t *testing.T, s *Server) {
	t.Helper()
	x, err := s.examine(mark{Clean: true}, 0)
	if err != nil || len(x.later) == 0 {
		t.Fatalf("%d blocks: %v", len(x.later), err)
	}
	s.scrub(ctx, x.later)
}

// MostConsumers is how many consumers a user may have.
const MostConsumers = mostConsumers
