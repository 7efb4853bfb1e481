package turns

import (
	"slices"

	"github.com/tallylog/tally/internal/agents/claude"
	"github.com/tallylog/tally/internal/agents/shapes"
)

// Quiet says in which members nobody says anything, for tests.
func Quiet(object, name string) bool {
	return shapes.Quiet(object, name) || object == ClaudeLine && claude.Line.Quiet[name]
}

// ClaudeLine stands for a line of Claude Code in what Quiet is asked.
const ClaudeLine = "claude-line"

// Shapes returns the names of the shapes of the table, in its order.
func Shapes() (names []string) {
	for _, s := range table {
		names = append(names, s.Name)
	}
	return names
}

// ShapeOf returns the row of the table that reads a turn, -1 if none does.
func ShapeOf(raw []byte) int {
	o, ok := shapes.Open("", raw)
	return slices.IndexFunc(table, func(s shapes.Shape) bool { return ok && s.Is(o) })
}
