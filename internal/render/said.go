package render

import (
	"github.com/tallylog/tally/internal/turns"
	"github.com/tallylog/tally/projector"
)

// Said returns what views look at of a turn: its text, what it took and the tools it used.
func Said(t projector.Turn) projector.Said {
	var s projector.Said
	s.Roles, s.Text = Text(t)
	read, ok := turns.Read(t.Raw)
	if !ok {
		return s
	}
	s.Model, s.Response, s.Usage = read.Model, read.Response, read.Usage
	for _, p := range read.Parts {
		if p.Kind == turns.Call || p.Kind == turns.Result && p.Error {
			s.Tools = append(s.Tools, projector.ToolUse{Tool: p.Name, Call: p.ID, Error: p.Kind == turns.Result})
		}
	}
	return s
}
