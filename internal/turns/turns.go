// Package turns reads what a turn says. Makers of models, and frameworks on top of them,
// each write turns in a shape of their own; one table knows the shapes, and each turn is
// recognised for itself. What is read is for people and for search: the bytes of a turn
// stay what they are, and a turn of no known shape is its JSON.
//
// The package is pure: it knows bytes, no log and no files.
package turns

import (
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
)

// Turn is what a turn says.
type Turn struct {
	Shape    string        // the name of the shape that was recognised
	Parts    []Part        // in the order in which they stand in the turn
	Model    string        // that spoke, if the turn says so
	Response string        // the id that the maker gave the response, if there is one
	Usage    events.Tokens // what the turn says that the response took; zero if it says nothing
}

// Part is a piece of what a turn says.
type Part struct {
	Kind  Kind
	Role  string // who speaks, as the turn has it: user, assistant, system, tool
	Text  string // what is said; the arguments of a call, as JSON; what a tool answered, as text or JSON
	Name  string // of the tool, or of the file
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
	Media                 // an image, a file, a sound
	Refusal               // text in which the model declined
	Other                 // what is known to be a part and not what it means: Text is its JSON
)

// shape is a way to write a turn.
type shape struct {
	name string
	read func(raw []byte, m rawjson.Members) (Turn, bool) // of an object; false: it has another shape
}

// shapes are asked in this order; the first that recognises a turn has it.
var shapes = []shape{
	{"step", readStep},
	{"variant", readVariant},
	{"message", readMessage},
}

// Read returns what a turn says. It is false if the turn has no known shape: it is not an
// object or a string, or an object of which nothing is known.
func Read(raw []byte) (Turn, bool) {
	if text, err := rawjson.String(raw); err == nil {
		return Turn{Shape: "text", Parts: []Part{{Role: "text", Text: text}}}, true
	}
	members, err := rawjson.Object(raw)
	if err != nil {
		return Turn{}, false
	}
	for _, s := range shapes {
		if t, ok := s.read(raw, members); ok {
			t.Shape = s.name
			return t, true
		}
	}
	return Turn{}, false
}

// spell is a value without white space.
func spell(raw []byte) string { return string(rawjson.AppendCompact(nil, raw)) }
