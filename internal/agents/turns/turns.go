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

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
)

// Turn is what a turn says.
type Turn struct {
	Shape    string        // who makes turns like this: openai, openai-responses, anthropic, gemini, ai-sdk, langchain, perstack, codex, claude-code, gemini-cli, pi, acp, exec; message if several do; step, variant, text
	Parts    []Part        // in the order in which they stand in the turn
	Model    string        // that spoke, if the turn says so
	Response string        // the id that the maker gave the response, if there is one
	Usage    events.Tokens // what the turn says that the response took; zero if it says nothing
	Terms    events.Terms  // on which terms, as the same usage says
}

// Part is a piece of what a turn says.
type Part struct {
	Kind  Kind
	Role  string // who speaks: user, assistant, system, tool, or another word that the turn has
	Text  string // what is said; the arguments of a call; what a tool answered; where an image or file is, if it is elsewhere
	Name  string // of the tool, of the file, or of who says the text
	ID    string // joins a call to its result
	Error bool   // the result is an error
	Media string // the media type of an image or file, or what it is called: "image"
	Bytes int64  // the size of an image or file in the turn; 0 if it is elsewhere
}

// Kind is what a part is.
type Kind uint8

// The kinds of parts.
const (
	Said      Kind = iota // text
	Reasoning             // text that the model thought; "" if it is withheld
	Call                  // of a tool
	Result                // of a call
	Media                 // an image, a file, a sound, a source
	Refusal               // text in which the model declined, or the reason for which it was stopped; may be ""
	Other                 // what is known to be a part and not what it means: Text is its JSON
)

// shape is a way to write a turn.
type shape struct {
	name string
	is   func(*object) bool // takes nothing
	read func(*reading, *object)
}

// shapes are asked in this order; the first that recognises a turn has it.
var shapes = []shape{
	{"claude-code", isClaudeLine, readClaudeLine},
	{"gemini-cli", isGeminiMessage, readGeminiMessage},
	{"pi", isPiEntry, readPiEntry},
	{"pi", isPiEvent, readPiEvent},
	{"exec", isFrame, readFrame},
	{"codex", isStreamItem, readStreamItem},
	{"gemini-cli", isGeminiEvent, readGeminiEvent},
	{"acp", isACPPrompt, readACPPrompt},
	{"acp", isACPTurn, readACPTurn},
	{"step", isStep, readStep},
	{"variant", isVariant, readVariant},
	{"codex", isRollout, readRollout},
	{"openai", isCompletion, readCompletion},
	{"openai-responses", isResponse, readResponse},
	{"gemini", isGenerated, readGenerated},
	{"gemini", isContent, readContent},
	{"ai-sdk", isUIMessage, readUIMessage},
	{"ai-sdk", isGenerateResult, readGenerateResult},
	{"langchain", isChainMessage, readChainMessage},
	{"perstack", isPerstackMessage, readPerstackMessage},
	{"perstack", isSkillItem, readSkillItem},
	{"openai-responses", isItem, readItem},
	{"message", isMessage, readMessage},
}

// Read returns what a turn says. It is false if the turn has no known shape: it is not an
// object or a string, or an object of which nothing is known.
func Read(raw []byte) (Turn, bool) {
	o, ok := open("", raw)
	if !ok {
		text, err := rawjson.String(raw)
		if err != nil {
			return Turn{}, false
		}
		return Turn{Shape: "text", Parts: []Part{{Role: "text", Text: text}}}, true
	}
	for _, s := range shapes {
		if s.is(o) {
			r := &reading{}
			s.read(r, o)
			t := r.finish()
			t.Shape = cmp.Or(t.Shape, s.name)
			return t, true
		}
	}
	return Turn{}, false
}
