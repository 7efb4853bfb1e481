//go:build !tally_daemons_blind

package tavern

import "github.com/tallylog/tally/log"

// daemonParts are the parts of a decision as they are appended: guarded.
func daemonParts(parts []log.Part) []log.Part { return parts }
