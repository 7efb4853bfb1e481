package sessiondir

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"iter"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/projector"
)

// Output describes a file of a session for writing: the source of its bytes.
type Output struct {
	Path   string            // inside the session's folder
	Format events.FileFormat // with the mode of the written file
	Known  bool              // the session has a format for it
	Gone   bool              // the file was removed, and the state renders nothing for it
	Whole  bool              // its document has the bytes
	Moved  bool              // its document has the former content, and the state has changed since

	// Problem describes what the file lacks of the import, see layouts.File.
	Problem string

	// Open converts the content of the document into the file; nil: they are equal.
	Open func(doc events.Subject, content []byte) ([]byte, error)

	// Render writes the file as the state renders it. The layout sets it. It is not called for a file that is kept
	// whole.
	Render func(w io.Writer) error

	src layouts.Source
	ns  string
	doc events.Subject
	at  events.Offset

	more func(w *LinesWriter) error // writes the lines added after the document was written; nil: none
}

// OutputOf decides where the bytes of a file come from. sum hashes the file as the state renders it in a format;
// OutputOf calls it only if the result depends on it.
func OutputOf(src layouts.Source, s *projector.Session, path string, sum func(events.FileFormat) (string, error)) (Output, error) {
	o := Output{Path: path, src: src, ns: s.Subject.Namespace}
	o.Format, o.Known = s.Ledger.Formats[KeyOf(path)]
	if o.Format.Doc == "" && !o.Format.Gone {
		return o, nil
	}
	asKept := o.Format.Of == ""
	if !asKept {
		have, err := sum(o.Format)
		if err != nil {
			return o, err
		}
		asKept = have == o.Format.Of
	}
	var err error
	switch {
	case o.Format.Gone && asKept:
		o.Gone = true
	case asKept:
		o.Whole = true
		o.doc, o.at, err = o.Format.Doc.Parse(s.Subject.Namespace)
	default:
		o.Moved = o.Format.Doc != ""
		o.Known = !o.Format.Gone // a file that came back after it was gone was never in a folder
	}
	return o, err
}

// Continue appends new turns to a file of lines that was kept whole, if the state only grew since. So an append
// rewrites no existing line, even one that the state does not have. raw returns a turn of the state.
func (o *Output) Continue(turns int, raw func(n int) []byte) (err error) {
	if !o.Moved {
		return nil
	}
	n, err := o.keptTurns(turns, raw)
	if err != nil || n < 0 {
		return err
	}
	o.Whole, o.Moved = true, false
	o.doc, o.at, err = o.Format.Doc.Parse(o.ns)
	o.more = func(w *LinesWriter) error {
		for ; n < turns; n++ {
			if err := w.Turn(raw(n), false); err != nil {
				return err
			}
		}
		return nil
	}
	return err
}

// keptTurns returns how many turns the state had when the file was kept, or -1 if the state did not only grow.
func (o *Output) keptTurns(turns int, raw func(n int) []byte) (int, error) {
	h := sha256.New()
	out := LinesWriter{W: h, Format: o.Format}
	for n := 0; ; n++ {
		so, err := h.(hash.Cloner).Clone()
		if err != nil {
			return -1, err
		}
		ended := LinesWriter{W: so, Format: o.Format, n: out.n}
		switch err := ended.End(); {
		case err != nil:
			return -1, err
		case HexSum(so) == o.Format.Of:
			return n, nil
		case n == turns:
			return -1, nil
		}
		if err := out.Turn(raw(n), false); err != nil {
			return -1, err
		}
	}
}

// writeMore writes a file that was kept whole, followed by the new lines.
func (o Output) writeMore(ctx context.Context, w io.Writer) error {
	kept := &lastByte{w: w}
	if err := writeDocument(ctx, o.src, o.doc, o.at, kept); err != nil {
		return err
	}
	format := o.Format
	format.FinalNewline, format.BOM = true, format.BOM && !kept.any
	out := LinesWriter{W: w, Format: format}
	if kept.any && kept.last != '\n' { // its last line has no end
		if _, err := io.WriteString(w, out.separator()); err != nil {
			return err
		}
	}
	if err := o.more(&out); err != nil {
		return err
	}
	return out.End()
}

// lastByte remembers the last byte that was written.
type lastByte struct {
	w    io.Writer
	any  bool
	last byte
}

func (l *lastByte) Write(b []byte) (int, error) {
	if len(b) > 0 {
		l.any, l.last = true, b[len(b)-1]
	}
	return l.w.Write(b)
}

// Write writes the bytes of the file.
func (o Output) Write(ctx context.Context, w io.Writer) error {
	switch {
	case !o.Whole:
		return o.Render(w)
	case o.more != nil:
		return o.writeMore(ctx, w)
	case o.Open == nil:
		return writeDocument(ctx, o.src, o.doc, o.at, w)
	}
	var content bytes.Buffer
	if err := writeDocument(ctx, o.src, o.doc, o.at, &content); err != nil {
		return err
	}
	file, err := o.Open(o.doc, content.Bytes())
	if err == nil {
		_, err = w.Write(file)
	}
	return err
}

// Holds reports whether the file is written with the bytes of a hash. A document must hold them in its newest
// revision.
func (o Output) Holds(ctx context.Context, sum string) (bool, error) {
	if o.Whole && o.at != 0 {
		return false, nil
	}
	if !o.Whole || o.Open != nil || o.more != nil {
		h := sha256.New()
		err := o.Write(ctx, h)
		return HexSum(h) == sum, err
	}
	have, err := Load(ctx, o.src, o.doc)
	return have.Exists && have.Sum == sum, err
}

// Way returns how the bytes of the file are kept.
func (o Output) Way() layouts.Way { return WayOf(o.Whole, o.Format) }

// WayOf returns how the bytes of a file with a format are kept.
func WayOf(whole bool, f events.FileFormat) layouts.Way {
	switch {
	case whole:
		return layouts.Whole
	case f.Derived:
		return layouts.Derived
	}
	return layouts.Exact
}

// errMovedOn reports a file that was kept whole and that the session, which changed since, no longer has.
var errMovedOn = errors.New("the session has changed and has no content for this file any more")

// Paths lists the files that a session has a format for, and others, sorted.
func Paths(s *projector.Session, others ...string) []string {
	for key := range s.Ledger.Formats {
		others = append(others, PathOf(key))
	}
	slices.Sort(others)
	return slices.Compact(others)
}

// Files yields the files of a session, with prefix before their paths. find returns the output for a path, and
// whether the file exists.
func Files(ctx context.Context, prefix string, paths []string,
	find func(context.Context, string) (Output, bool, error)) iter.Seq2[layouts.File, error] {
	return func(yield func(layouts.File, error) bool) {
		for _, name := range paths {
			o, ok, err := find(ctx, name)
			if err == nil && !ok {
				if !o.Moved {
					continue
				}
				err = errMovedOn
			}
			if !yield(o.file(ctx, prefix), err) {
				return
			}
		}
	}
}

func (o Output) file(ctx context.Context, prefix string) layouts.File {
	f := layouts.File{Path: prefix + o.Path, Mode: layouts.FileMode(o.Format.Mode), Way: o.Way(), Problem: o.Problem,
		Write: func(w io.Writer) error { return o.Write(ctx, w) }}
	if o.Moved {
		f.Note = "the session has moved on since this file was kept whole: rendered from the state"
	}
	return f
}
