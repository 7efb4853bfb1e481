// Package message reads the content of a turn. Makers of models, frameworks on top of them and agents each write
// turns in a shape of their own. One table lists the shapes, and each turn is recognised by itself. Package shapes
// has the shapes of makers and frameworks; each agent's package has its own. The result is for people and for search:
// the bytes of a turn stay as they are, and a turn of an unknown shape is shown as JSON.
//
// The package is pure: it handles bytes, and uses neither log nor files.
package message

import (
	"github.com/tallylog/tally/internal/agents/acp"
	"github.com/tallylog/tally/internal/agents/claude"
	"github.com/tallylog/tally/internal/agents/codex"
	"github.com/tallylog/tally/internal/agents/gemini"
	"github.com/tallylog/tally/internal/agents/pi"
	"github.com/tallylog/tally/internal/agents/shapes"
	"github.com/tallylog/tally/internal/agents/stream"
	"github.com/tallylog/tally/internal/rawjson"
)

// table lists the shapes in the order in which they are tried. The first one that recognises a turn reads it.
var table = []shapes.Shape{
	claude.Line,
	gemini.Line,
	pi.Line,
	pi.Printed,
	stream.Frame,
	codex.Printed,
	gemini.Printed,
	acp.Prompt,
	acp.Answer,
	shapes.Step,
	shapes.Variant,
	codex.Line,
	shapes.Completion,
	shapes.Response,
	gemini.Generated,
	gemini.Content,
	shapes.UIMessage,
	shapes.GenerateResult,
	shapes.ChainMessage,
	shapes.PerstackMessage,
	shapes.SkillItem,
	shapes.Item,
	shapes.Message,
}

// Read returns the content of a turn. It returns false if the turn has no known shape: it is neither an object nor a
// string, or it is an unknown object.
func Read(raw []byte) (shapes.Turn, bool) {
	o, ok := shapes.Open("", raw)
	if !ok {
		text, err := rawjson.String(raw)
		if err != nil {
			return shapes.Turn{}, false
		}
		return shapes.Turn{Shape: "text", Parts: []shapes.Part{{Role: "text", Text: text}}}, true
	}
	for _, s := range table {
		if s.Is(o) {
			return s.Turn(o), true
		}
	}
	return shapes.Turn{}, false
}
