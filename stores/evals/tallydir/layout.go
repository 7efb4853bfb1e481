package tallydir

import (
	"context"
	"fmt"
	"io"
	"iter"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/formats"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/internal/foreign"
)

// Layout is the layout of this package. It has no state.
type Layout struct{}

var _ formats.Layout = Layout{}

// Name implements formats.Layout.
func (Layout) Name() string { return Format }

// Sniff implements formats.Layout: a folder that holds conversations/ or
// .tally/conversations/, or the folder of one conversation.
func (Layout) Sniff(path string) bool {
	_, err := locate(path)
	return err == nil
}

// Import implements formats.Layout, see [Import].
func (Layout) Import(ctx context.Context, target formats.Target, path string, o formats.ImportOptions) (formats.Report, error) {
	return Import(ctx, target, path, o)
}

// Files implements formats.Layout.
func (Layout) Files(ctx context.Context, src formats.Source, s *projector.Session) iter.Seq2[formats.File, error] {
	return func(yield func(formats.File, error) bool) {
		v := view{src, s}
		dir := conversations + "/" + folderOf(s) + "/"
		for _, path := range v.paths() {
			f, ok, err := v.file(ctx, path)
			out := formats.File{Path: dir + path, Mode: formats.FileMode(f.format.Mode), Way: f.way()}
			if err == nil && !ok {
				if f.moved {
					err = fmt.Errorf("the session has moved on, and has nothing any more that this file could hold")
				} else {
					continue
				}
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

// folderOf returns the name of a session's folder: the one it was imported from,
// else the one made of its id.
func folderOf(s *projector.Session) string {
	if name := foreign.PathOf(s.Ledger.Text(fieldFolder)); formats.IsFileName(name) {
		return name
	}
	return formats.FileName(s.Subject.ID)
}

// RootFiles implements formats.Layout.
func (Layout) RootFiles(ctx context.Context, src formats.Source, root string) iter.Seq2[formats.File, error] {
	return func(yield func(formats.File, error) bool) {
		for info, err := range src.Subjects(ctx, events.KindFile) {
			if err != nil {
				yield(formats.File{}, err)
				return
			}
			if !isRootFile(info.Subject.ID, root) {
				continue
			}
			have, err := foreign.Load(ctx, src, info.Subject)
			if err == nil && !have.Exists {
				continue
			}
			f := formats.File{Path: rootPath(have, root), Mode: formats.FileMode(foreign.ParseMode(have.Meta.Attributes[foreign.AttrMode])), Way: formats.Whole}
			f.Write = func(w io.Writer) error { return foreign.WriteDocument(ctx, src, info.Subject, 0, w) }
			if !yield(f, err) {
				return
			}
		}
	}
}

// rootPath returns the path of a root's own file.
func rootPath(have foreign.Stored, root string) string {
	if path := have.Meta.Attributes[foreign.AttrPath]; path != "" {
		return foreign.PathOf(path)
	}
	return strings.TrimPrefix(have.Doc.ID, root+"/")
}

// Subject implements formats.Layout: the session of a file in a conversation's
// folder, the document of any other.
func (Layout) Subject(ctx context.Context, src formats.Source, root, path string) (events.Subject, bool) {
	rest, ok := strings.CutPrefix(path, conversations+"/")
	name, inside, below := strings.Cut(rest, "/")
	if ok && below && inside != "" && formats.IsFileName(name) {
		if id, ok := foreign.SessionOf(ctx, src, name); ok {
			return events.Session(src.Namespace(), id), true
		}
		return events.Subject{}, false
	}
	if path == "" || strings.Contains(path, "/") && (!ok || below) {
		return events.Subject{}, false
	}
	return documentOf(src.Namespace(), root, path), true
}
