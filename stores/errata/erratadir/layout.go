package erratadir

import (
	"context"
	"fmt"
	"io"
	"iter"
	"path"
	"slices"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/formats"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/internal/foreign"
)

// Layout is the layout of this package.
type Layout struct {
	// Redact exports what may be shared: of each session the metadata without
	// prompts, previews, files and notes, and the content without anything that was
	// typed or answered. Prompts, recipes and every other file are left out.
	Redact bool
}

var (
	_ formats.Layout  = Layout{}
	_ formats.Chooser = Layout{}
)

// Name implements formats.Layout.
func (Layout) Name() string { return Format }

// Sniff implements formats.Layout: a folder that holds sessions/, the prompts or
// the oldest history, itself or in data/, or the folder of one session.
func (Layout) Sniff(path string) bool {
	_, err := locate(path)
	return err == nil
}

// Import implements formats.Layout, see [Import].
func (Layout) Import(ctx context.Context, target formats.Target, path string, o formats.ImportOptions) (formats.Report, error) {
	return Import(ctx, target, path, o)
}

// Exports implements formats.Chooser: panels and prompts that no import brought.
func (Layout) Exports(kind string) bool {
	return kind == events.KindPanel || kind == events.KindPrompts
}

// Files implements formats.Layout.
func (l Layout) Files(ctx context.Context, src formats.Source, s *projector.Session) iter.Seq2[formats.File, error] {
	v := newView(src, s)
	if l.Redact {
		return v.redactedFiles(ctx)
	}
	return func(yield func(formats.File, error) bool) {
		for _, name := range v.paths() {
			f, ok, err := v.file(ctx, name)
			out := formats.File{Path: path.Join(dirOf(s.Subject.ID), name), Mode: formats.FileMode(f.mode()), Way: f.way()}
			if err == nil && !ok {
				if !f.moved {
					continue
				}
				err = fmt.Errorf("the session has moved on, and has nothing any more that this file could hold")
			}
			if f.moved {
				out.Note = "the session has moved on since this file was kept whole: rendered from the state"
			}
			out.Write = func(w io.Writer) error { return v.write(ctx, f, w) }
			if !yield(out, err) {
				return
			}
		}
	}
}

// RootFiles implements formats.Layout.
func (l Layout) RootFiles(ctx context.Context, src formats.Source, root string) iter.Seq2[formats.File, error] {
	return func(yield func(formats.File, error) bool) {
		if l.Redact {
			return
		}
		if root == formats.LiveRoot {
			data, err := liveRecipes(ctx, src)
			f := formats.File{Path: recipesName, Mode: formats.FileMode(privateMode), Write: func(w io.Writer) error {
				_, err := w.Write(data)
				return err
			}}
			if (data != nil || err != nil) && !yield(f, err) {
				return
			}
		}
		for have, err := range rootFiles(ctx, src, root) {
			f := formats.File{Path: pathIn(have, root), Mode: formats.FileMode(foreign.ParseMode(have.Meta.Attributes[foreign.AttrMode])), Way: formats.Whole,
				Write: func(w io.Writer) error { return foreign.WriteDocument(ctx, src, have.Doc, 0, w) }}
			if !yield(f, err) {
				return
			}
		}
	}
}

// rootFiles yields the documents of a root's own files.
func rootFiles(ctx context.Context, src formats.Source, root string) iter.Seq2[foreign.Stored, error] {
	return func(yield func(foreign.Stored, error) bool) {
		for info, err := range src.Subjects(ctx, events.KindFile) {
			if err != nil {
				yield(foreign.Stored{}, err)
				return
			}
			if !isBelow(info.Subject.ID, root) {
				continue
			}
			have, err := foreign.Load(ctx, src, info.Subject)
			if err == nil && (!have.Exists || ofSession(have)) {
				continue
			}
			if !yield(have, err) {
				return
			}
		}
	}
}

// Subject implements formats.Layout: the session of a file in a session's folder
// or of one that is a session beside them, the document of any other.
func (Layout) Subject(ctx context.Context, src formats.Source, root, name string) (events.Subject, bool) {
	for id, own := range beside {
		if name == own {
			return events.Session(src.Namespace(), id), true
		}
	}
	rest, ok := strings.CutPrefix(name, sessions+"/")
	dir, inside, below := strings.Cut(rest, "/")
	switch {
	case ok && below && inside != "" && formats.IsFileName(dir):
		id, ok := foreign.SessionOf(ctx, src, dir)
		return events.Session(src.Namespace(), id), ok
	case name == "" || slices.Contains(strings.Split(name, "/"), ""):
		return events.Subject{}, false
	}
	return documentOf(src.Namespace(), root, name), true
}
