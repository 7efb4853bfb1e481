package foreign

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"iter"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/formats"
	"github.com/tallylog/tally/projector"
)

// Output is a file of a session as it comes out: where its bytes come from.
type Output struct {
	Path   string            // inside the session's folder
	Format events.FileFormat // with the mode that it comes out with
	Known  bool              // the session has a format for it
	Gone   bool              // it is not there, and the state has nothing else for it
	Whole  bool              // its document has the bytes
	Moved  bool              // its document has what it was, but the state has moved on

	// Problem says what it lacks of what was imported, as formats.File has it.
	Problem string

	// Open turns what its document holds into the file. nil: it is the file.
	Open func(doc events.Subject, content []byte) ([]byte, error)

	// Render writes what the state has for it, whatever document is kept beside it. It
	// is the layout's, and not called for a file that is kept whole.
	Render func(w io.Writer) error

	src formats.Source
	doc events.Subject
	at  events.Offset
}

// OutputOf decides where the bytes of a file come from. sum hashes what the state renders
// by a format; it is asked only if that decides.
func OutputOf(src formats.Source, s *projector.Session, path string, sum func(events.FileFormat) (string, error)) (Output, error) {
	o := Output{Path: path, src: src}
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
		o.Known = !o.Format.Gone // what came after it was gone was never in a folder
	}
	return o, err
}

// Write writes the bytes of the file.
func (o Output) Write(ctx context.Context, w io.Writer) error {
	switch {
	case !o.Whole:
		return o.Render(w)
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

// Holds reports whether the file comes out with the bytes of a hash. A document has to have
// them now.
func (o Output) Holds(ctx context.Context, sum string) (bool, error) {
	if o.Whole && o.at != 0 {
		return false, nil
	}
	if !o.Whole || o.Open != nil {
		h := sha256.New()
		err := o.Write(ctx, h)
		return HexSum(h) == sum, err
	}
	have, err := Load(ctx, o.src, o.doc)
	return have.Exists && have.Sum == sum, err
}

// Way says how the bytes of the file are kept.
func (o Output) Way() formats.Way { return WayOf(o.Whole, o.Format) }

// WayOf says how the bytes of a file are kept that has a format.
func WayOf(whole bool, f events.FileFormat) formats.Way {
	switch {
	case whole:
		return formats.Whole
	case f.Derived:
		return formats.Derived
	}
	return formats.Exact
}

// errMovedOn says that a file was kept whole, and that the session has nothing for it any
// more.
var errMovedOn = errors.New("the session has moved on, and has nothing any more that this file could hold")

// Paths lists the files that a session has a format for, and others, sorted.
func Paths(s *projector.Session, others ...string) []string {
	for key := range s.Ledger.Formats {
		others = append(others, PathOf(key))
	}
	slices.Sort(others)
	return slices.Compact(others)
}

// Files yields the files of a session, whose paths begin with a prefix there. find returns
// the file of a path and whether there is one.
func Files(ctx context.Context, prefix string, paths []string,
	find func(context.Context, string) (Output, bool, error)) iter.Seq2[formats.File, error] {
	return func(yield func(formats.File, error) bool) {
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

func (o Output) file(ctx context.Context, prefix string) formats.File {
	f := formats.File{Path: prefix + o.Path, Mode: formats.FileMode(o.Format.Mode), Way: o.Way(), Problem: o.Problem,
		Write: func(w io.Writer) error { return o.Write(ctx, w) }}
	if o.Moved {
		f.Note = "the session has moved on since this file was kept whole: rendered from the state"
	}
	return f
}
