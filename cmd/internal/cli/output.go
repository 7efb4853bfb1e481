package cli

import (
	"io"

	"github.com/spf13/pflag"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/internal/render"
)

// Format is the format of results.
type Format string

const (
	Text  Format = "text"
	JSON  Format = "json"  // one document, indented
	JSONL Format = "jsonl" // a compact line for each item
)

// Flag returns a flag for the format.
func (f *Format) Flag() pflag.Value { return OneOf(f, "format", Text, JSON, JSONL) }

// WriteJSON writes one value: indented, or on one line for JSONL.
func WriteJSON(w io.Writer, f Format, v any) error {
	data, err := rawjson.Marshal(v)
	if err != nil {
		return err
	}
	if f == JSONL {
		data = rawjson.AppendCompact(nil, data)
	} else {
		data = rawjson.AppendIndent(nil, data, "  ")
	}
	_, err = w.Write(append(data, '\n'))
	return err
}

// List writes items as they come: lines for JSONL, the elements of one array for JSON.
type List struct {
	w      io.Writer
	format Format
	count  int
}

// NewList starts a list.
func NewList(w io.Writer, f Format) *List { return &List{w: w, format: f} }

// Add writes one item.
func (l *List) Add(v any) error {
	if l.format == JSONL {
		return WriteJSON(l.w, JSONL, v)
	}
	data, err := rawjson.Marshal(v)
	if err != nil {
		return err
	}
	lead := "[\n  "
	if l.count > 0 {
		lead = ",\n  "
	}
	l.count++
	_, err = l.w.Write(rawjson.AppendIndentAt([]byte(lead), data, "  ", 1))
	return err
}

// Close ends the list.
func (l *List) Close() error {
	var err error
	switch {
	case l.format == JSONL:
	case l.count == 0:
		_, err = io.WriteString(l.w, "[]\n")
	default:
		_, err = io.WriteString(l.w, "\n]\n")
	}
	return err
}

// WriteList writes a complete list of items.
func WriteList[T any](w io.Writer, f Format, items []T) error {
	list := NewList(w, f)
	for _, item := range items {
		if err := list.Add(item); err != nil {
			return err
		}
	}
	return list.Close()
}

// ID returns an id for output: unchanged, or escaped if it is not UTF-8. Commands accept both.
func ID(id string) string { return render.ID(id) }

// SubjectName formats a subject of an event for people.
func SubjectName(text string) string {
	sub, err := events.ParseSubject("default", text)
	if err != nil {
		return text
	}
	return sub.Name()
}

// NonNil returns an empty list instead of nil, which JSON would write as null.
func NonNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// Minute formats a time for people, "-" if it is not set.
func Minute(t events.Timestamp) string {
	at, ok := t.Time()
	if !ok {
		return "-"
	}
	return at.UTC().Format("2006-01-02 15:04")
}
