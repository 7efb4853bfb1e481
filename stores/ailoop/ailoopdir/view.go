package ailoopdir

import (
	"bytes"
	"context"
	"io"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/ailoop/internal/chat"
	"github.com/tallylog/tally/stores/internal/sessiondir"
)

// indents has the indents with which a file can be rendered. The first one is the original's.
var indents = []string{chat.Indent, "", "    ", "\t", " "}

// view renders the snapshot of a session.
type view struct {
	src layouts.Source
	s   *projector.Session
}

// spell returns a snapshot as a file.
func spell(c chat.Snapshot, f events.FileFormat) []byte {
	return sessiondir.SpellJSON(rawjson.AppendCompact(nil, chat.Append(nil, c)), f)
}

// spelling returns how a file is spelled, and whether the state of the session renders it exactly.
func spelling(data []byte, c chat.Snapshot) (events.FileFormat, bool) {
	body, marked := bytes.CutPrefix(data, []byte(sessiondir.BOM))
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

// Dir implements sessiondir.View.
func (v view) Dir() string { return "" }

// Paths implements sessiondir.View. There is one file, of any name.
func (v view) Paths(context.Context) ([]string, error) { return []string{formatKey}, nil }

// File implements sessiondir.View.
func (v view) File(context.Context, string) (sessiondir.Output, bool, error) {
	o, err := v.file()
	return o, true, err
}

// file returns where the bytes of the session's file come from.
func (v view) file() (sessiondir.Output, error) {
	c, err := chat.Of(v.s)
	if err != nil {
		return sessiondir.Output{Path: fileOf(v.s)}, err
	}
	o, err := sessiondir.OutputOf(v.src, v.s, formatKey, func(f events.FileFormat) (string, error) { return sessiondir.SumOf(spell(c, f)), nil })
	o.Path = fileOf(v.s)
	if !o.Known {
		o.Format.Indent = chat.Indent // the original's indent
	}
	o.Render = func(w io.Writer) error {
		_, err := w.Write(spell(c, o.Format))
		return err
	}
	return o, err
}
