package rawjson

import (
	"bytes"
	"encoding/json"
)

// A Member is one name of an object with its value.
type Member struct {
	Name  string
	Value json.RawMessage
}

// Members is an object with its members in their order.
//
// As a field with a tag such as `json:"meta"` it is an object of its own, {} if nil. With the tag `json:",unknown"` it
// takes, in order, the members of the surrounding object that no other field takes, and they are written after the
// known ones. It also takes a member of a field with the tag `rawjson:"kept"` whose value the field's omitempty or
// omitzero would lose; such a member is written at the position of its field.
type Members []Member

// Get returns the value of the first member called name.
func (m Members) Get(name string) (json.RawMessage, bool) {
	for i := range m {
		if m[i].Name == name {
			return m[i].Value, true
		}
	}
	return nil, false
}

// Text returns the first of several members that is a string, or "".
func (m Members) Text(names ...string) string {
	for _, name := range names {
		if raw, _ := m.Get(name); Begins(raw, '"') {
			if text, err := String(raw); err == nil {
				return text
			}
		}
	}
	return ""
}

// Compact returns the first of several existing members without white space, or "".
func (m Members) Compact(names ...string) string {
	for _, name := range names {
		if raw, ok := m.Get(name); ok {
			return string(AppendCompact(nil, raw))
		}
	}
	return ""
}

// Object returns the first member called name if it is an object, else nil.
func (m Members) Object(name string) Members {
	raw, _ := m.Get(name)
	if !Begins(raw, '{') {
		return nil
	}
	inner, err := Object(raw)
	if err != nil {
		return nil
	}
	return inner
}

// Begins reports whether a value begins with c, apart from white space. Readers of optional members call it first: an
// error for a missing value, or for one of another kind, costs more than reading a value.
func Begins(b []byte, c byte) bool {
	i := space(b, 0)
	return i < len(b) && b[i] == c
}

// Object parses one object and returns its members in order. The values alias b and have no white space around them. It
// returns a *SyntaxError if b does not pass [Check], and a *FieldError if b is not an object, has a name twice (after
// unescaping) or a name with a lone surrogate.
func Object(b []byte) (Members, error) { return ObjectInside(b, 0) }

// ObjectInside is [Object] for an object that will be inside depth containers: together they may be nested no deeper
// than MaxDepth.
func ObjectInside(b []byte, depth int) (Members, error) {
	r := reader{b: b, depth: depth}
	i, err := start(b)
	var m Members
	if err == nil {
		m, i, err = r.members(i)
	}
	if err == nil {
		err = finish(b, i)
	}
	if err != nil {
		return nil, settle(b, err)
	}
	return m, nil
}

// Array reads the elements of one array. They alias b and have no white space
// around them. It returns a *SyntaxError if b does not pass [Check], and a
// *FieldError if b is not an array.
func Array(b []byte) ([]json.RawMessage, error) {
	r := reader{b: b}
	i, err := start(b)
	more := false
	if err == nil {
		i, more, err = r.open(i, '[')
	}
	elems := []json.RawMessage{}
	for more && err == nil {
		var raw json.RawMessage
		if raw, i, err = r.raw(i); err == nil {
			elems = append(elems, raw)
			i, more, err = r.next(i, false)
		}
	}
	if err == nil {
		err = finish(b, i)
	}
	if err != nil {
		return nil, settle(b, err)
	}
	return elems, nil
}

// AppendArray appends an array of values, which stand in it as they are.
func AppendArray(dst []byte, elems []json.RawMessage) []byte {
	dst = append(dst, '[')
	for i, raw := range elems {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, raw...)
	}
	return append(dst, ']')
}

func (r *reader) members(i int) (Members, int, error) {
	var seen nameSet
	m := Members{}
	i, more, err := r.open(i, '{')
	for more && err == nil {
		var name []byte
		if name, i, err = r.name(i); err != nil {
			return nil, 0, err
		}
		one := Member{Name: string(name)}
		if !seen.add(one.Name) {
			return nil, 0, &FieldError{one.Name, twice}
		}
		if one.Value, i, err = r.raw(i); err != nil {
			return nil, 0, err
		}
		m = append(m, one)
		i, more, err = r.next(i, true)
	}
	return m, i, err
}

// A nameSet finds names that occur twice. Up to a handful it is a list on the
// stack.
type nameSet struct {
	few  [16]string
	n    int
	many map[string]struct{}
}

// add is false if name was there.
func (s *nameSet) add(name string) bool {
	for _, have := range s.few[:s.n] {
		if have == name {
			return false
		}
	}
	if s.n < len(s.few) {
		s.few[s.n] = name
		s.n++
		return true
	}
	if _, ok := s.many[name]; ok {
		return false
	}
	if s.many == nil {
		s.many = map[string]struct{}{}
	}
	s.many[name] = struct{}{}
	return true
}

// Trim returns the input without the JSON white space around it.
func Trim(b []byte) []byte { return bytes.Trim(b, " \t\r\n") }
