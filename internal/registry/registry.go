package registry

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/projector"
)

// maxSchema bounds a schema, in bytes.
const maxSchema = 64 << 10

// content is the content of a type's document.
type content struct {
	Name    string        `json:"name,omitempty"` // of the type, if a file says it; that of the document is its id
	Moves   string        `json:"moves"`
	Schema  events.Raw    `json:"schema,omitempty"`
	Offsets []string      `json:"offsets,omitempty"`
	Unknown events.Fields `json:",unknown"`
}

// Entry is a registered type.
type Entry struct {
	events.Type
	Since events.Offset // of the first revision of its document
	Last  events.Offset // of the last one
}

// Subject returns the document of a type.
func Subject(name string) events.Subject {
	return events.Document(events.DefaultNamespace, events.KindType, name)
}

// Encode returns the content of a type's document. If the type is invalid, the error is an *events.InvalidError.
func Encode(t events.Type) ([]byte, error) {
	c := content{Moves: t.Moves, Offsets: t.Offsets}
	if len(t.Schema) > 0 {
		c.Schema = t.Schema
	}
	if err := c.check(t.Name); err != nil {
		return nil, err
	}
	return rawjson.Marshal(c)
}

// Parse reads a type from the content of its document, or from a file. name is the document's id; with "" the content
// has the name. An error is an *events.InvalidError.
func Parse(name string, data []byte) (events.Type, error) {
	var c content
	if err := rawjson.Unmarshal(data, &c); err != nil {
		return events.Type{}, invalid("data", "%v", err)
	}
	if name == "" {
		name = c.Name
	}
	if c.Name != "" && c.Name != name {
		return events.Type{}, invalid("name", "%q: the document is that of %s", c.Name, name)
	}
	if err := c.check(name); err != nil {
		return events.Type{}, err
	}
	return events.Type{Name: name, Moves: c.Moves, Schema: c.Schema, Offsets: c.Offsets}, nil
}

// Validate checks the content of a type's document, for tally.Kind.
func Validate(data []byte, _ string) error {
	var c content
	if err := rawjson.Unmarshal(data, &c); err != nil {
		return invalid("data", "%v", err)
	}
	return c.check("com.example")
}

func (c content) check(name string) error {
	e := events.Event{ID: "1", Source: "urn:tally", Type: name, Subject: events.Session("", "s")}
	switch err := e.Validate(); {
	case events.IsKnown(name):
		return invalid("name", "%s is a type of tally", name)
	case err != nil:
		return err
	case len(c.Unknown) > 0: // a misspelled member would have no effect
		return invalid(c.Unknown[0].Name, "want moves, schema and offsets")
	case c.Moves != events.WithThread && c.Moves != events.InLedger:
		return invalid("moves", "%q: want %s or %s", c.Moves, events.WithThread, events.InLedger)
	case len(c.Schema) > maxSchema:
		return invalid("schema", "has %d bytes, at most %d are allowed", len(c.Schema), maxSchema)
	}
	for i, p := range c.Offsets {
		if !strings.HasPrefix(p, "/") || strings.Contains(strings.NewReplacer("~0", "", "~1", "").Replace(p), "~") {
			return invalid(fmt.Sprintf("offsets[%d]", i), "%q is not a JSON pointer, such as /target", p)
		}
	}
	if len(c.Schema) == 0 {
		return nil
	}
	_, err := compile(c.Schema)
	return err
}

func invalid(field, format string, args ...any) error {
	return &events.InvalidError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

// Agree returns an *events.TypeError if a type has not the movement and the offsets with which it is registered.
func (e Entry) Agree(t events.Type) error {
	if e.Moves != t.Moves {
		return &events.TypeError{Name: t.Name, Field: "moves", Have: e.Moves, Want: t.Moves}
	}
	if !slices.Equal(e.Offsets, t.Offsets) {
		return &events.TypeError{Name: t.Name, Field: "offsets", Have: fmt.Sprintf("%q", e.Offsets), Want: fmt.Sprintf("%q", t.Offsets)}
	}
	return nil
}

// HasSchema reports whether a type has the registered schema, apart from white space.
func (e Entry) HasSchema(t events.Type) bool {
	var have, want bytes.Buffer
	for buffer, schema := range map[*bytes.Buffer]json.RawMessage{&have: e.Schema, &want: t.Schema} {
		if len(schema) > 0 && json.Compact(buffer, schema) != nil {
			return false
		}
	}
	return bytes.Equal(have.Bytes(), want.Bytes())
}

// next returns the entry after a revision of the type's document. Revisions that are invalid, or that contradict the
// first one, change nothing: only a log without an owner has them.
func (e *Entry) next(rec events.Record) *Entry {
	t, err := Parse(rec.Subject.ID, rec.Data)
	if rec.Type != events.TypeDocumentWritten || err != nil || e != nil && e.Agree(t) != nil {
		return e
	}
	if e == nil {
		return &Entry{t, rec.Offset, rec.Offset}
	}
	return &Entry{t, e.Since, rec.Offset}
}

// Find returns the registered type with a name, or nil.
func Find(ctx context.Context, src projector.Source, name string) (e *Entry, err error) {
	for rec, err := range events.Readable(src.Read(ctx, events.Range{Subject: Subject(name), Buffered: true})) {
		if err != nil {
			return nil, err
		}
		e = e.next(rec)
	}
	return e, nil
}

// All lists the registered types by name.
func All(ctx context.Context, src projector.Source) ([]Entry, error) {
	found := make(map[string]*Entry)
	for rec, err := range events.Readable(src.Read(ctx, events.Range{Namespace: events.DefaultNamespace, Kind: events.KindType})) {
		if err != nil {
			return nil, err
		}
		found[rec.Subject.ID] = found[rec.Subject.ID].next(rec)
	}
	var list []Entry
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if e := found[name]; e != nil {
			list = append(list, *e)
		}
	}
	return list, nil
}
