package erratadir

import (
	"context"
	"errors"
	"io"
	"iter"

	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/internal/sessiondir"
)

// Layout is the layout of this package.
//
// Its Import brings a folder into a store: errata's data folder, a folder that holds it as data/,
// or the folder of one session. Files that cannot be read are problems of the report, with file and
// line; they are kept as they are, and nothing that the store has is taken away for them.
type Layout struct {
	// Redact exports what may be shared: of each session the metadata without
	// prompts, previews, files and notes, and the content without anything that was
	// typed or answered. Prompts, recipes and every other file are left out.
	Redact bool

	sessiondir.Layout[store, *folder, view]
}

var (
	_ layouts.Layout  = Layout{}
	_ layouts.Chooser = Layout{}
)

// Files implements layouts.Renderer.
func (l Layout) Files(ctx context.Context, src layouts.Source, s *projector.Session) iter.Seq2[layouts.File, error] {
	if l.Redact {
		return newView(src, s).redactedFiles(ctx)
	}
	return l.Layout.Files(ctx, src, s)
}

// RootFiles implements layouts.Renderer: with the recipes that no import brought.
func (l Layout) RootFiles(ctx context.Context, src layouts.Source, root string) iter.Seq2[layouts.File, error] {
	if l.Redact {
		return func(func(layouts.File, error) bool) {}
	}
	kept := l.Layout.RootFiles(ctx, src, root)
	if root != layouts.LiveRoot {
		return kept
	}
	return func(yield func(layouts.File, error) bool) {
		_, err := sessiondir.RootFile(ctx, src, root, documentOf(src.Namespace(), root, recipesName))
		if errors.Is(err, projector.ErrNotFound) {
			data, err := liveRecipes(ctx, src)
			if (data != nil || err != nil) && !yield(privateFile(recipesName, layouts.Exact, data), err) {
				return
			}
		}
		kept(yield)
	}
}

// privateFile is a file that no import brought.
func privateFile(name string, way layouts.Way, data []byte) layouts.File {
	return layouts.File{Path: name, Mode: layouts.FileMode(privateMode), Way: way, Write: func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	}}
}
