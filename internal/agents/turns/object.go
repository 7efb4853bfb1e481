package turns

import (
	"encoding/json"
	"strconv"

	"github.com/tallylog/tally/internal/rawjson"
)

// An object is read member by member: what is read is taken, once, and what nobody takes
// is left over. A member that is null is not there.
type object struct {
	name    string // of the member that it is, "" if it is none
	members rawjson.Members
	taken   []bool
	inner   map[int]*object // members that are read as objects
}

// open returns the object that stands in a member called name.
func open(name string, raw []byte) (*object, bool) {
	members, err := rawjson.Object(raw)
	if err != nil {
		return nil, false
	}
	return newObject(name, members), true
}

func newObject(name string, members rawjson.Members) *object {
	return &object{name: name, members: members, taken: make([]bool, len(members))}
}

// all reports whether a list is of objects, all of which are what is asked for.
func all(list []json.RawMessage, is func(*object) bool) bool {
	for _, raw := range list {
		if o, ok := open("", raw); !ok || !is(o) {
			return false
		}
	}
	return true
}

// find returns the place of a member that is there and not taken, -1 if there is none.
func (o *object) find(name string) int {
	for i, m := range o.members {
		if m.Name == name && !o.taken[i] && string(m.Value) != "null" {
			return i
		}
	}
	return -1
}

// has reports whether one of several members is there.
func (o *object) has(names ...string) bool {
	for _, name := range names {
		if o.find(name) >= 0 {
			return true
		}
	}
	return false
}

// peek returns a member and leaves it where it is.
func (o *object) peek(name string) json.RawMessage {
	if i := o.find(name); i >= 0 {
		return o.members[i].Value
	}
	return nil
}

// word returns a text and leaves it where it is, "" if there is none.
func (o *object) word(name string) string {
	text, err := rawjson.String(o.peek(name))
	if err != nil {
		return ""
	}
	return text
}

// elements returns a list and leaves it where it is; false if there is none.
func (o *object) elements(name string) ([]json.RawMessage, bool) {
	list, err := rawjson.Array(o.peek(name))
	return list, err == nil
}

// take returns the first of several members that is there, nil if none is.
func (o *object) take(names ...string) json.RawMessage {
	for _, name := range names {
		if i := o.find(name); i >= 0 {
			o.taken[i] = true
			return o.members[i].Value
		}
	}
	return nil
}

// text takes the first of several members that is a text, "" if none is.
func (o *object) text(names ...string) string {
	for _, name := range names {
		if text, err := rawjson.String(o.peek(name)); err == nil {
			o.take(name)
			return text
		}
	}
	return ""
}

// value takes the first of several members that is there: a text as it reads, all else as
// JSON.
func (o *object) value(names ...string) string { return words(o.take(names...)) }

// list takes a member that is a list.
func (o *object) list(name string) []json.RawMessage {
	list, ok := o.elements(name)
	if ok {
		o.take(name)
	}
	return list
}

// object takes the first of several members that is an object; what is left over of that
// is left over of this.
func (o *object) object(names ...string) (*object, bool) {
	for _, name := range names {
		if i := o.find(name); i >= 0 {
			if inner, ok := open(name, o.members[i].Value); ok {
				if o.inner == nil {
					o.inner = make(map[int]*object)
				}
				o.taken[i], o.inner[i] = true, inner
				return inner, true
			}
		}
	}
	return nil, false
}

// isTrue takes a member that is true.
func (o *object) isTrue(names ...string) bool {
	for _, name := range names {
		if string(o.peek(name)) == "true" {
			o.take(name)
			return true
		}
	}
	return false
}

// maxCount is the largest number that is exact in every language.
const maxCount = 1 << 53

// count returns the first of several members that is a whole number, 0 if none is.
func (o *object) count(names ...string) int64 {
	for _, name := range names {
		if n, err := strconv.ParseInt(string(o.peek(name)), 10, 64); err == nil && n >= 0 && n <= maxCount {
			return n
		}
	}
	return 0
}

// words is a value for people: a text as it reads, all else as JSON, "" for nil.
func words(raw []byte) string {
	if text, err := rawjson.String(raw); err == nil {
		return text
	}
	return spell(raw)
}

// spell is a value without white space.
func spell(raw []byte) string { return string(rawjson.AppendCompact(nil, raw)) }
