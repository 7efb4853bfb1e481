package turns

import (
	"github.com/tallylog/tally/internal/agents/claude"
	"github.com/tallylog/tally/internal/agents/shapes"
)

// Quiet says in which members nobody says anything, for tests.
func Quiet(object, name string) bool {
	return shapes.Quiet(object, name) || object == ClaudeLine && claude.Line.Quiet[name]
}

// ClaudeLine stands for a line of Claude Code in what Quiet is asked.
const ClaudeLine = "claude-line"
