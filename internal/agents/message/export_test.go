package message

import (
	"maps"
	"slices"

	"github.com/tallylog/tally/internal/agents/shapes"
)

// Quiet returns a function that tells in which members of a turn of a shape nobody says anything.
func Quiet(shape string) func(object, name string) bool {
	own := make(map[string]bool)
	for _, s := range table {
		if s.Name == shape {
			maps.Copy(own, s.Quiet)
		}
	}
	return func(object, name string) bool { return shapes.Quiet(object, name) || object == Whole && own[name] }
}

// Whole stands for the turn itself in what Quiet is asked.
const Whole = "the turn"

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
