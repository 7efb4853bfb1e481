//go:build broken_flow_blind

package tavern

import (
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
)

// This file is in no product. The laws of flows are run on a build with it, to show that they
// would notice: a move is appended whatever came in between.
func flowUnchanged(events.Offset) log.Expect { return log.Any }
