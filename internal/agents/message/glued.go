package message

import (
	"slices"

	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/agents/shapes"
	"github.com/tallylog/tally/internal/rawjson"
)

// lines has the shapes of the table in which agents keep their sessions.
var lines = slices.DeleteFunc(slices.Clone(table), func(s shapes.Shape) bool { return !s.Kept })

// ReadGlued is Read for a line that is not valid JSON because it contains several lines of an agent's file, as real
// files do: complete lines, or half a line followed by the next one. Only the text of half a line is kept, as a part.
// For any other input ReadGlued returns false.
func ReadGlued(line []byte) (shapes.Turn, bool) {
	whole, rest := rawjson.Objects(line)
	ending, torn := agents.Endings(rest, isLine)
	if len(whole)+len(ending) == 0 || len(ending) == 0 && (len(whole) < 2 || len(rest) > 0) {
		return shapes.Turn{}, false
	}
	r := &shapes.Reading{}
	for _, o := range whole {
		if !readLine(r, o) {
			return shapes.Turn{}, false
		}
	}
	if len(torn) > 0 {
		r.Add(shapes.Part{Kind: shapes.Other, Role: "torn", Text: string(torn)})
	}
	for _, o := range ending {
		readLine(r, o.Members)
	}
	return r.Finish(), true
}

// isLine reports whether an object is a line of an agent's file.
func isLine(m rawjson.Members) bool {
	return slices.ContainsFunc(lines, func(s shapes.Shape) bool { return s.Is(shapes.NewObject("", m)) })
}

// readLine reads an object as a line of an agent's file. It returns false if it is not one.
func readLine(r *shapes.Reading, members rawjson.Members) bool {
	o := shapes.NewObject("", members)
	for _, s := range lines {
		if s.Is(o) {
			r.By(s.Name)
			s.Into(r, o)
			return true
		}
	}
	return false
}
