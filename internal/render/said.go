package render

import (
	"github.com/tallylog/tally/internal/turns"
	"github.com/tallylog/tally/projector"
)

// Said returns what views look at of a turn: its text, what it took and the tools it used.
// Bytes that are not JSON say nothing.
func Said(t projector.Turn) projector.Said {
	if t.Raw == nil {
		return projector.Said{}
	}
	read, ok := turns.Read(t.Raw)
	s := projector.Said{Model: read.Model, Response: read.Response, Usage: read.Usage}
	s.Roles, s.Text = textOf(t.Raw, read, ok)
	for _, p := range read.Parts {
		if p.Kind == turns.Call || p.Kind == turns.Result && p.Error {
			s.Tools = append(s.Tools, projector.ToolUse{Tool: p.Name, Call: p.ID, Error: p.Kind == turns.Result})
		}
	}
	return s
}
