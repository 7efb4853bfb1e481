//go:build tally_perstack_whole

package perstack

import (
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/stores/perstack/internal/share"
)

// This file is in no product. The test of a job's size builds with it, to show that it would
// notice: every value is stored whole.
func split(_ *share.Messages, _ string, raw events.Raw) (share.Split, error) {
	return share.Whole(raw), nil
}
