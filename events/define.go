package events

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// Movements of a type's events, for Type.Moves.
const (
	WithThread = "thread" // a rewind takes the events out of effect, as it does turns
	InLedger   = "ledger" // the events stay in effect, as costs do
)

// Type is a type of events of another vocabulary than tally's. A store knows it by a document of the kind KindType,
// which embedded.Options.Types writes. Events of a type that the store does not know belong to the ledger.
type Type struct {
	Name    string          // such as com.acme.vote.cast.v2
	Moves   string          // WithThread or InLedger
	Schema  json.RawMessage // JSON Schema of the data, which the owner of a store checks; nil: any data
	Offsets []string        // JSON pointers to members of the data that hold offsets of the event's own subject

	from map[string]func(data []byte) ([]byte, error)
}

// TypeOf is a Type with data that encoding/json codes as T.
type TypeOf[T any] struct{ Type }

// Define returns a type of events. The movement of a name never changes in a store: for another meaning, use another
// name, with another version at its end.
func Define[T any](name, moves string) TypeOf[T] { return TypeOf[T]{Type{Name: name, Moves: moves}} }

// Schema returns the type with a JSON Schema of its data, of at most 64 KiB. It may refer only to parts of itself.
func (t TypeOf[T]) Schema(schema json.RawMessage) TypeOf[T] {
	t.Type.Schema = schema
	return t
}

// From returns the type with an upcaster: In reads events of an older type, too, whose data up converts. The events in
// the log stay as they are.
func (t TypeOf[T]) From(older string, up func(data []byte) ([]byte, error)) TypeOf[T] {
	t.from = maps.Clone(t.from)
	if t.from == nil {
		t.from = make(map[string]func([]byte) ([]byte, error))
	}
	t.from[older] = up
	return t
}

// Older returns the older types that From names, in order.
func (t Type) Older() []string { return slices.Sorted(maps.Keys(t.from)) }

// New returns an event of the type. It has no id, no source and no time: the append of a store sets them.
func (t TypeOf[T]) New(sub Subject, v T) (Event, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return Event{}, fmt.Errorf("events: encode %s: %w", t.Name, err)
	}
	return Event{Type: t.Name, Subject: sub, ContentType: ContentTypeJSON, Data: data}, nil
}

// In returns the data of an event of the type, or of an older type that From names. For other types, and for an erased
// event, ok is false.
func (t TypeOf[T]) In(e Event) (v T, ok bool, err error) {
	if e.Erased() != "" {
		return v, false, nil
	}
	data := e.Data
	if up := t.from[e.Type]; up != nil {
		data, err = up(data)
	} else if e.Type != t.Name {
		return v, false, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &v)
	}
	if err != nil {
		return *new(T), false, fmt.Errorf("events: decode %s: %w", e.Type, err)
	}
	return v, true, nil
}
