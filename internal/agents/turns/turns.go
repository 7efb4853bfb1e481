// Package turns reads what a turn says. Makers of models, and frameworks on top of them,
// each write turns in a shape of their own; one table knows the shapes, and each turn is
// recognised for itself. What is read is for people and for search: the bytes of a turn
// stay what they are, and a turn of no known shape is its JSON.
//
// Nothing that was said is lost. A part of an unknown kind is kept as its JSON, and so are
// members of a known one that nobody reads, if there is text in them that is nowhere else
// in the turn. Identifiers, types and what is base64 are no text; [quiet] lists them.
//
// The package is pure: it knows bytes, no log and no files.
package turns

import (
	"cmp"

	"github.com/tallylog/tally/internal/rawjson"
)

// table lists the shapes; they are asked in this order; the first that recognises a turn has it.
var table = []Shape{
	{"claude-code", isClaudeLine, readClaudeLine},
	{"gemini-cli", isGeminiMessage, readGeminiMessage},
	{"pi", isPiEntry, readPiEntry},
	{"pi", isPiEvent, readPiEvent},
	{"exec", isFrame, readFrame},
	{"codex", isStreamItem, readStreamItem},
	{"gemini-cli", isGeminiEvent, readGeminiEvent},
	{"acp", isACPPrompt, readACPPrompt},
	{"acp", isACPTurn, readACPTurn},
	Step,
	Variant,
	{"codex", isRollout, readRollout},
	Completion,
	Response,
	{"gemini", isGenerated, readGenerated},
	{"gemini", isContent, readContent},
	UIMessage,
	GenerateResult,
	ChainMessage,
	PerstackMessage,
	SkillItem,
	Item,
	Message,
}

// Read returns what a turn says. It is false if the turn has no known shape: it is not an
// object or a string, or an object of which nothing is known.
func Read(raw []byte) (Turn, bool) {
	o, ok := Open("", raw)
	if !ok {
		text, err := rawjson.String(raw)
		if err != nil {
			return Turn{}, false
		}
		return Turn{Shape: "text", Parts: []Part{{Role: "text", Text: text}}}, true
	}
	for _, s := range table {
		if s.Is(o) {
			r := &Reading{}
			s.Read(r, o)
			t := r.Finish()
			t.Shape = cmp.Or(t.Shape, s.Name)
			return t, true
		}
	}
	return Turn{}, false
}
