//go:build tally_daemons_blind

package tavern

import (
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
)

// This file is in no product. The law of daemons builds with it, to show that it would
// notice: decisions are appended whatever has happened meanwhile, under ids that say nothing.
func daemonParts(parts []log.Part) []log.Part {
	blind := make([]log.Part, len(parts))
	for i, p := range parts {
		blind[i] = log.Part{Subject: p.Subject, Expect: log.Since(1<<62, events.TypeUnitAppended)}
		for _, e := range p.Events {
			e.ID = ""
			blind[i].Events = append(blind[i].Events, e)
		}
	}
	return blind
}
