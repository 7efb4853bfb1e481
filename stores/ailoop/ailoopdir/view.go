package ailoopdir

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/formats"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/ailoop/internal/chat"
	"github.com/tallylog/tally/stores/internal/foreign"
)

const bom = foreign.BOM

// indents are those by which a file can be rendered; the first one is the
// original's.
var indents = []string{chat.Indent, "", "    ", "\t", " "}

// view renders the snapshot of a session.
type view struct {
	src formats.Source
	s   *projector.Session
}

// format returns how the file is spelled: as it was imported, else as the original
// writes it.
func (v view) format() events.FileFormat {
	if f, ok := v.s.Ledger.Formats[formatKey]; ok {
		return f
	}
	return events.FileFormat{Indent: chat.Indent}
}

// snapshot returns what the session holds. A turn that is not a message is an error.
func (v view) snapshot() (chat.Snapshot, error) {
	var c chat.Snapshot
	for i, t := range v.s.Threads.Turns(events.MainThread) {
		if err := chat.CheckMessage(t.Raw); err != nil {
			return c, turnError(i, t, err)
		}
		c.Messages = append(c.Messages, t.Raw)
		c.Pinned = append(c.Pinned, t.Pinned)
	}
	if raw, ok := v.s.Ledger.Fields.Get(chat.UnknownField); ok {
		unknown, err := rawjson.Object(raw)
		if err != nil {
			return c, fmt.Errorf("%s: %v", chat.UnknownField, err)
		}
		c.Unknown = unknown
	}
	return c, nil
}

// spell writes a snapshot as a file.
func spell(c chat.Snapshot, f events.FileFormat) []byte {
	return foreign.SpellJSON(rawjson.AppendCompact(nil, chat.Append(nil, c)), f)
}

// spelling finds how a file is spelled, and whether it is what the state of the
// session renders.
func spelling(data []byte, c chat.Snapshot) (events.FileFormat, bool) {
	body, marked := bytes.CutPrefix(data, []byte(bom))
	f := events.FileFormat{BOM: marked}
	switch rest := body[len(bytes.TrimRight(body, " \t\r\n")):]; string(rest) {
	case "\n":
		f.FinalNewline = true
	case "\r\n":
		f.FinalNewline, f.Separator = true, "\r\n"
	}
	for _, indent := range indents {
		if f.Indent = indent; bytes.Equal(spell(c, f), data) {
			return f, true
		}
	}
	return events.FileFormat{Indent: chat.Indent}, false
}

// body is where the bytes of a session's file come from.
type body struct {
	whole    bool // the document has them
	moved    bool // a document has what they were, but the state has moved on
	format   events.FileFormat
	snapshot chat.Snapshot
}

// file decides where the bytes come from.
func (v view) file() (body, error) {
	b := body{format: v.format()}
	var err error
	if b.snapshot, err = v.snapshot(); err != nil {
		return b, err
	}
	if b.format.Doc != "" {
		b.whole = b.format.Of == foreign.SumOf(spell(b.snapshot, b.format))
		b.moved = !b.whole
	}
	return b, nil
}

// write writes the file.
func (v view) write(ctx context.Context, b body, w io.Writer) error {
	if b.whole {
		doc, at, err := b.format.Doc.Parse(v.s.Subject.Namespace)
		if err != nil {
			return err
		}
		return foreign.WriteDocument(ctx, v.src, doc, at, w)
	}
	_, err := w.Write(spell(b.snapshot, b.format))
	return err
}
