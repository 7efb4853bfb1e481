package render

import (
	"slices"
	"strings"

	"github.com/tallylog/tally/internal/agents/shapes"
	"github.com/tallylog/tally/projector"
)

// Said returns the data of a turn that views use: the speakers, the text, tokens and the tools. The text contains
// messages, thoughts, tool calls, results and shown content, without labels and images. JSON of unknown shape is its
// own text. Other bytes have no text, and neither has an erased turn.
func Said(t projector.Turn) projector.Said {
	read, ok := Read(t)
	switch {
	case t.Erased != "" || !ok && t.Raw == nil:
		return projector.Said{}
	case !ok:
		return projector.Said{Roles: "json", Text: shapes.Plain(string(t.Raw))}
	}
	s := projector.Said{Model: read.Model, Response: read.Response, Usage: read.Usage, Terms: read.Terms}
	var who, said []string
	for _, p := range read.Parts {
		if role := speaker(p); !slices.Contains(who, role) {
			who = append(who, role)
		}
		for _, text := range []string{p.Name, shapes.Plain(p.Text)} {
			if text != "" {
				said = append(said, text)
			}
		}
		if p.Kind == shapes.Call || p.Kind == shapes.Result && p.Error {
			s.Tools = append(s.Tools, projector.ToolUse{Tool: p.Name, Call: p.ID, Error: p.Kind == shapes.Result})
		}
	}
	s.Roles, s.Text = strings.Join(who, " "), strings.Join(said, "\n")
	return s
}
