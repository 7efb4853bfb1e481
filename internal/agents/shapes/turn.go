// Package shapes reads turns into parts. A [Shape] recognises the turns of one maker and reads
// them, an [Object] is read member by member, and a [Reading] collects the parts. The shapes of
// models' makers and of frameworks are here, because messages of agents have their parts inside.
// Each agent's package has the shapes of its own lines. Package turns lists all shapes.
//
// Nothing that was said is lost. A part of an unknown kind is kept as its JSON. So is a member
// that a shape does not read, if there is text in it that is nowhere else in the turn.
// Identifiers, types and base64 do not count as text; [Quiet] lists them.
//
// The package is pure: it knows bytes, no log and no files.
package shapes

import (
	"cmp"

	"github.com/tallylog/tally/events"
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

// Shape is a way to write a turn.
type Shape struct {
	Name string             // of its maker; see Turn.Shape
	Is   func(*Object) bool // takes nothing
	Read func(*Reading, *Object)

	Quiet map[string]bool // members of the turn itself in which nobody says anything
	Kept  bool            // an agent keeps its sessions in such lines, so one may stand behind half of another
}

// Into reads a turn that the shape has recognised.
func (s Shape) Into(r *Reading, o *Object) {
	o.quiet = s.Quiet
	s.Read(r, o)
}

// Turn returns what a turn says that the shape has recognised.
func (s Shape) Turn(o *Object) Turn {
	r := &Reading{}
	s.Into(r, o)
	t := r.Finish()
	t.Shape = cmp.Or(t.Shape, s.Name)
	return t
}
