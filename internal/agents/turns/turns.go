// Package turns reads what a turn says. Makers of models, and frameworks on top of them,
// each write turns in a shape of their own; package shapes and the agents' packages have the
// shapes, one table lists them, and each turn is recognised for itself. What is read is for people and for search: the bytes of a turn
// stay what they are, and a turn of no known shape is its JSON.
//
// The package is pure: it knows bytes, no log and no files.
package turns

import (
	"github.com/tallylog/tally/internal/agents/claude"
	"github.com/tallylog/tally/internal/agents/codex"
	"github.com/tallylog/tally/internal/agents/shapes"
	"github.com/tallylog/tally/internal/rawjson"
)

// table lists the shapes; they are asked in this order; the first that recognises a turn has it.
var table = []shapes.Shape{
	claude.Line,
	{Name: "gemini-cli", Is: isGeminiMessage, Read: readGeminiMessage},
	{Name: "pi", Is: isPiEntry, Read: readPiEntry},
	{Name: "pi", Is: isPiEvent, Read: readPiEvent},
	{Name: "exec", Is: isFrame, Read: readFrame},
	codex.Printed,
	{Name: "gemini-cli", Is: isGeminiEvent, Read: readGeminiEvent},
	{Name: "acp", Is: isACPPrompt, Read: readACPPrompt},
	{Name: "acp", Is: isACPTurn, Read: readACPTurn},
	shapes.Step,
	shapes.Variant,
	codex.Line,
	shapes.Completion,
	shapes.Response,
	{Name: "gemini", Is: isGenerated, Read: readGenerated},
	{Name: "gemini", Is: isContent, Read: readContent},
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
