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
// Import imports a folder into a store: errata's data folder, a folder that contains it as data/, or the folder of
// one session. A file that cannot be parsed is a problem of the report, with file and line. It is kept as it is, and
// the store keeps its data.
type Layout struct {
	// Redact makes an export shareable. The metadata of each session omit prompts, previews, files and notes, and the
	// content omits all prompts and answers. Prompts, recipes and every other file are not exported.
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

// RootFiles implements layouts.Renderer. It adds the recipes that were not imported.
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

// privateFile returns a file that was not imported.
func privateFile(name string, way layouts.Way, data []byte) layouts.File {
	return layouts.File{Path: name, Mode: layouts.FileMode(privateMode), Way: way, Write: func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	}}
}
