package evals

import (
	"iter"
	"strconv"

	"github.com/tallylog/tally/internal/rawjson"
)

// Ordered is a JSON object used as a map, in the order of its names. The zero value is empty.
type Ordered[T any] struct {
	entries []entry[T]
}

type entry[T any] struct {
	name  string
	value T
}

// Get returns the value of a name, and whether it exists.
func (o Ordered[T]) Get(name string) (T, bool) {
	for _, e := range o.entries {
		if e.name == name {
			return e.value, true
		}
	}
	var none T
	return none, false
}

// Set sets the value of a name, at its position or at the end.
func (o *Ordered[T]) Set(name string, value T) {
	for i := range o.entries {
		if o.entries[i].name == name {
			o.entries[i].value = value
			return
		}
	}
	o.entries = append(o.entries, entry[T]{name, value})
}

// Len returns the number of names.
func (o Ordered[T]) Len() int { return len(o.entries) }

// All yields names and values in order.
func (o Ordered[T]) All() iter.Seq2[string, T] {
	return func(yield func(string, T) bool) {
		for _, e := range o.entries {
			if !yield(e.name, e.value) {
				return
			}
		}
	}
}

// AppendRawJSON appends the object.
func (o Ordered[T]) AppendRawJSON(dst []byte) ([]byte, error) {
	dst = append(dst, '{')
	for i, e := range o.entries {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(rawjson.AppendString(dst, e.name), ':')
		var err error
		if dst, err = rawjson.Append(dst, e.value); err != nil {
			return nil, inMember(e.name, err)
		}
	}
	return append(dst, '}'), nil
}

// ParseRawJSON parses the object.
func (o *Ordered[T]) ParseRawJSON(raw []byte) error {
	members, err := rawjson.Object(raw)
	if err != nil {
		return err
	}
	o.entries = make([]entry[T], len(members))
	for i, m := range members {
		o.entries[i].name = m.Name
		if err := rawjson.Unmarshal(m.Value, &o.entries[i].value); err != nil {
			return inMember(m.Name, err)
		}
	}
	return nil
}

// inMember prepends a name to the path of an error.
func inMember(name string, err error) error {
	key := "[" + strconv.Quote(name) + "]"
	if f, ok := err.(*rawjson.FieldError); ok {
		return &rawjson.FieldError{Path: joinPath(key, f.Path), Reason: f.Reason}
	}
	return &rawjson.FieldError{Path: key, Reason: err.Error()}
}
