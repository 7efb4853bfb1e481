package shapes

import (
	"encoding/json"
	"strconv"

	"github.com/tallylog/tally/internal/rawjson"
)

// Object is a JSON object that is read member by member. A member is taken once; the others are left over. A member
// with the value null counts as missing.
type Object struct {
	name    string // of the member that has this object, or ""
	Members rawjson.Members
	taken   []bool
	inner   map[int]*Object // members that are read as objects
	quiet   map[string]bool // members without text of a speaker; see Shape.Quiet
}

// Open parses the object in a member called name.
func Open(name string, raw []byte) (*Object, bool) {
	if !rawjson.Begins(raw, '{') {
		return nil, false
	}
	members, err := rawjson.Object(raw)
	if err != nil {
		return nil, false
	}
	return NewObject(name, members), true
}

func NewObject(name string, members rawjson.Members) *Object {
	return &Object{name: name, Members: members, taken: make([]bool, len(members))}
}

// Several returns the values of a list, or the single value.
func Several(raw json.RawMessage) []json.RawMessage {
	if list, ok := listOf(raw); ok {
		return list
	}
	return []json.RawMessage{raw}
}

// All reports whether a list has only objects that satisfy is.
func All(list []json.RawMessage, is func(*Object) bool) bool {
	for _, raw := range list {
		if o, ok := Open("", raw); !ok || !is(o) {
			return false
		}
	}
	return true
}

// find returns the index of a member that exists and is not taken, else -1.
func (o *Object) find(name string) int {
	for i, m := range o.Members {
		if m.Name == name && !o.taken[i] && string(m.Value) != "null" {
			return i
		}
	}
	return -1
}

// Has reports whether one of several members exists.
func (o *Object) Has(names ...string) bool {
	for _, name := range names {
		if o.find(name) >= 0 {
			return true
		}
	}
	return false
}

// Peek returns a member without taking it.
func (o *Object) Peek(name string) json.RawMessage {
	if i := o.find(name); i >= 0 {
		return o.Members[i].Value
	}
	return nil
}

// Word returns a text without taking it, or "".
func (o *Object) Word(name string) string {
	text, _ := textOf(o.Peek(name))
	return text
}

// Elements returns a list without taking it, or false.
func (o *Object) Elements(name string) ([]json.RawMessage, bool) { return listOf(o.Peek(name)) }

// Take takes and returns the first of several members that exists, nil if none does.
func (o *Object) Take(names ...string) json.RawMessage {
	for _, name := range names {
		if i := o.find(name); i >= 0 {
			o.taken[i] = true
			return o.Members[i].Value
		}
	}
	return nil
}

// Text takes the first of several members that is a text, or "".
func (o *Object) Text(names ...string) string {
	for _, name := range names {
		if text, ok := textOf(o.Peek(name)); ok {
			o.Take(name)
			return text
		}
	}
	return ""
}

// Value takes the first of several members that exists. It returns a text unquoted, and other values as JSON.
func (o *Object) Value(names ...string) string { return TextOf(o.Take(names...)) }

// List takes a member that is a list.
func (o *Object) List(name string) []json.RawMessage {
	list, ok := o.Elements(name)
	if ok {
		o.Take(name)
	}
	return list
}

// Object takes the first of several members that is an object. Its members that stay untaken are left over of o, too.
func (o *Object) Object(names ...string) (*Object, bool) {
	for _, name := range names {
		if i := o.find(name); i >= 0 {
			if inner, ok := Open(name, o.Members[i].Value); ok {
				if o.inner == nil {
					o.inner = make(map[int]*Object)
				}
				o.taken[i], o.inner[i] = true, inner
				return inner, true
			}
		}
	}
	return nil, false
}

// Data takes a member that is base64 and returns its size in bytes. Otherwise it returns 0.
func (o *Object) Data(name string) int64 {
	text := o.Word(name)
	if !isData(text) {
		return 0
	}
	o.Take(name)
	return decodedLen(text)
}

// IsTrue takes a member that is true.
func (o *Object) IsTrue(names ...string) bool {
	for _, name := range names {
		if string(o.Peek(name)) == "true" {
			o.Take(name)
			return true
		}
	}
	return false
}

// IsObject reports whether a member is an object.
func (o *Object) IsObject(name string) bool {
	raw := o.Peek(name)
	if !rawjson.Begins(raw, '{') {
		return false
	}
	_, err := rawjson.Object(raw)
	return err == nil
}

// maxCount is the largest number that is exact in every language.
const maxCount = 1 << 53

// Count returns the first of several members that is a whole number, or 0.
func (o *Object) Count(names ...string) int64 {
	for _, name := range names {
		if n, err := strconv.ParseInt(string(o.Peek(name)), 10, 64); err == nil && n >= 0 && n <= maxCount {
			return n
		}
	}
	return 0
}

// TextOf returns a value for people: a text unquoted, other values as JSON, "" for nil.
func TextOf(raw []byte) string {
	if text, ok := textOf(raw); ok {
		return text
	}
	return Compact(raw)
}

// textOf returns a value that is a text.
func textOf(raw []byte) (string, bool) {
	if !rawjson.Begins(raw, '"') {
		return "", false
	}
	text, err := rawjson.String(raw)
	return text, err == nil
}

// listOf returns the elements of a value that is a list.
func listOf(raw []byte) ([]json.RawMessage, bool) {
	if !rawjson.Begins(raw, '[') {
		return nil, false
	}
	list, err := rawjson.Array(raw)
	return list, err == nil
}

// Compact returns a value without white space.
func Compact(raw []byte) string { return string(rawjson.AppendCompact(nil, raw)) }
