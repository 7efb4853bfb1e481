package message

import (
	"maps"
	"slices"

	"github.com/tallylog/tally/internal/agents/shapes"
)

// Quiet returns a function that reports which members of a turn of a shape contain no text of a speaker.
func Quiet(shape string) func(object, name string) bool {
	own := make(map[string]bool)
	for _, s := range table {
		if s.Name == shape {
			maps.Copy(own, s.Quiet)
		}
	}
	return func(object, name string) bool { return shapes.Quiet(object, name) || object == Whole && own[name] }
}

// Whole is the object name that stands for the turn itself in calls of Quiet.
const Whole = "the turn"

// Shapes returns the names of the shapes of the table, in order.
func Shapes() (names []string) {
	for _, s := range table {
		names = append(names, s.Name)
	}
	return names
}

// ShapeOf returns the row of the table that reads a turn, -1 if no row does.
func ShapeOf(raw []byte) int {
	o, ok := shapes.Open("", raw)
	return slices.IndexFunc(table, func(s shapes.Shape) bool { return ok && s.Is(o) })
}
