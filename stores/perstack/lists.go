//go:build !tally_perstack_whole

package perstack

import "github.com/tallylog/tally/stores/perstack/internal/share"

// split takes out of a value what the session has already.
var split = (*share.Messages).Split
