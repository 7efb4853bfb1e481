// Package shapes reads turns into parts. A [Shape] recognises the turns of one maker and reads them, an [Object] is
// read member by member, and a [Reading] collects the parts. The package has the shapes of models' makers and of
// frameworks, because messages of agents contain their parts. Each agent's package has the shapes of its own lines.
// Package message lists all shapes.
//
// No text is lost. A part of an unknown kind is kept as its JSON. A member that a shape does not read is kept, if it
// has text that is nowhere else in the turn. Identifiers, types and base64 do not count as text; [Quiet] lists them.
//
// The package is pure: it handles bytes, and uses neither log nor files.
package shapes

import (
	"cmp"

	"github.com/tallylog/tally/events"
)

// Turn is the content of a turn.
type Turn struct {
	Shape    string        // the maker of such turns: openai, openai-responses, anthropic, gemini, ai-sdk, langchain, perstack, codex, claude-code, gemini-cli, pi, acp, exec; message if several makers are possible; step, variant, text
	Parts    []Part        // in their order in the turn
	Model    string        // the speaking model, if the turn has it
	Response string        // the maker's id of the response, if the turn has it
	Usage    events.Tokens // tokens of the response; zero if the turn has none
	Terms    events.Terms  // terms of the same usage
}

// Part is a piece of a turn's content.
type Part struct {
	Kind  Kind
	Role  string // user, assistant, system, tool, or another word of the turn
	Text  string // the text; the arguments of a call; the result of a tool; the address of an image or file that is not in the turn
	Name  string // of the tool, the file, or the speaker
	ID    string // joins a call to its result
	Error bool   // the result is an error
	Media string // media type of an image or file, or the word for it: "image"
	Bytes int64  // size of an image or file in the turn; 0 if it is not in the turn
}

// Kind is the kind of a part.
type Kind uint8

// The kinds of parts.
const (
	Said      Kind = iota // text
	Reasoning             // reasoning of the model; "" if it is withheld
	Call                  // of a tool
	Result                // of a call
	Media                 // an image, a file, a sound, a source
	Refusal               // the model's refusal, or the reason why it was stopped; may be ""
	Other                 // a part of unknown meaning: Text is its JSON
)

// Shape is a way to write a turn.
type Shape struct {
	Name string             // of its maker; see Turn.Shape
	Is   func(*Object) bool // takes no members
	Read func(*Reading, *Object)

	Quiet map[string]bool // members of the turn itself without text of a speaker
	Kept  bool            // an agent keeps its sessions in such lines, so a line may follow half of another one
}

// Into reads a turn that the shape recognised.
func (s Shape) Into(r *Reading, o *Object) {
	o.quiet = s.Quiet
	s.Read(r, o)
}

// Turn returns the content of a turn that the shape recognised.
func (s Shape) Turn(o *Object) Turn {
	r := &Reading{}
	s.Into(r, o)
	t := r.Finish()
	t.Shape = cmp.Or(t.Shape, s.Name)
	return t
}
