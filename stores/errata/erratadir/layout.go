package erratadir

import (
	"context"
	"errors"
	"io"
	"iter"
	"slices"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/formats"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/internal/sessiondir"
)

// Layout is the layout of this package.
type Layout struct {
	// Redact exports what may be shared: of each session the metadata without
	// prompts, previews, files and notes, and the content without anything that was
	// typed or answered. Prompts, recipes and every other file are left out.
	Redact bool
}

var (
	_ formats.Live    = Layout{}
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
	prefix := dirOf(s.Subject.ID)
	if prefix != "" {
		prefix += "/"
	}
	return sessiondir.Files(ctx, prefix, v.paths(), v.file)
}

// RootFiles implements formats.Layout.
func (l Layout) RootFiles(ctx context.Context, src formats.Source, root string) iter.Seq2[formats.File, error] {
	if l.Redact {
		return func(func(formats.File, error) bool) {}
	}
	kept := sessiondir.ExportRoot(ctx, src, root, nil)
	if root != formats.LiveRoot {
		return kept
	}
	return func(yield func(formats.File, error) bool) {
		_, err := sessiondir.RootFile(ctx, src, root, documentOf(src.Namespace(), root, recipesName))
		if errors.Is(err, projector.ErrNotFound) {
			data, err := liveRecipes(ctx, src)
			if (data != nil || err != nil) && !yield(privateFile(recipesName, formats.Exact, data), err) {
				return
			}
		}
		kept(yield)
	}
}

// privateFile is a file that no import brought.
func privateFile(name string, way formats.Way, data []byte) formats.File {
	return formats.File{Path: name, Mode: formats.FileMode(privateMode), Way: way, Write: func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	}}
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
		id, ok := sessiondir.SessionOf(ctx, src, dir)
		return events.Session(src.Namespace(), id), ok
	case name == "" || slices.Contains(strings.Split(name, "/"), ""):
		return events.Subject{}, false
	}
	return documentOf(src.Namespace(), root, name), true
}
