package tallydir

import (
	"context"
	"iter"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/formats"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/internal/sessiondir"
)

// Layout is the layout of this package. It has no state.
type Layout struct{}

var _ formats.Live = Layout{}

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
	v := view{src, s}
	return sessiondir.Files(ctx, conversations+"/"+folderOf(s)+"/", v.paths(), v.file)
}

// folderOf returns the name of a session's folder: the one it was imported from,
// else the one made of its id.
func folderOf(s *projector.Session) string {
	if name := sessiondir.PathOf(s.Ledger.Text(fieldFolder)); formats.IsFileName(name) {
		return name
	}
	return formats.FileName(s.Subject.ID)
}

// RootFiles implements formats.Layout.
func (Layout) RootFiles(ctx context.Context, src formats.Source, root string) iter.Seq2[formats.File, error] {
	return sessiondir.ExportRoot(ctx, src, root, isRootFile)
}

// Subject implements formats.Layout: the session of a file in a conversation's
// folder, the document of any other.
func (Layout) Subject(ctx context.Context, src formats.Source, root, path string) (events.Subject, bool) {
	rest, ok := strings.CutPrefix(path, conversations+"/")
	name, inside, below := strings.Cut(rest, "/")
	if ok && below && inside != "" && formats.IsFileName(name) {
		if id, ok := sessiondir.SessionOf(ctx, src, name); ok {
			return events.Session(src.Namespace(), id), true
		}
		return events.Subject{}, false
	}
	if path == "" || strings.Contains(path, "/") && (!ok || below) {
		return events.Subject{}, false
	}
	return documentOf(src.Namespace(), root, path), true
}
