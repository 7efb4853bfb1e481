package erratadir

import (
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/stores/internal/foreign"
)

// contradicts reports whether the plan would undo what others did after the last
// import. To add turns to what others added takes nothing away.
func (p *plan) contradicts(since map[string]bool) bool {
	head := since[events.TypeSessionUpdated] || since[events.TypeCheckpointSaved] || since[events.TypeCheckpointCleared]
	return foreign.MovesThreads(since) && p.rewrites || since[events.TypeSessionRewound] && (p.rewrites || p.extends) ||
		(since[events.TypeRunFinished] || since[events.TypeRunAnnotated]) && p.again || head && p.head
}
