// Package message reads what a turn says. Makers of models, frameworks on top of them and agents
// each write turns in a shape of their own. One table lists the shapes, and each turn is
// recognised for itself. Package shapes has those of makers and frameworks, and each agent's
// package has its own. What is read is for people and for search: the bytes of a turn stay what
// they are, and a turn of no known shape is its JSON.
//
// The package is pure: it knows bytes, no log and no files.
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

// table lists the shapes in the order in which they are asked. The first one that recognises a
// turn reads it.
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

// Read returns what a turn says. It is false if the turn has no known shape: it is not an
// object or a string, or an object of which nothing is known.
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
