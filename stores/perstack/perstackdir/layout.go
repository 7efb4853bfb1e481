package perstackdir

import (
	"context"
	"iter"
	"slices"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/formats"
	"github.com/tallylog/tally/internal/sealed"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/internal/sessiondir"
	"github.com/tallylog/tally/stores/perstack/internal/shape"
)

// Layout is the layout of this package.
type Layout struct {
	// Keys returns the keys that seal and open the secrets of settings. nil, or an error
	// that is sealed.ErrNoKey: there are none. Any other error ends an import, and is a
	// problem of the files of an export that have secrets.
	Keys func() (*sealed.Ring, error)
}

var (
	_ formats.Live    = Layout{}
	_ formats.Chooser = Layout{}
)

// Name implements formats.Layout.
func (Layout) Name() string { return Format }

// Exports implements formats.Chooser: jobs that no import brought.
func (Layout) Exports(kind string) bool { return kind == events.KindJob }

// Sniff implements formats.Layout: the folder perstack, the one around it, that of the jobs,
// or the folder of one job.
func (Layout) Sniff(path string) bool {
	_, err := locate(path)
	return err == nil
}

// Files implements formats.Layout.
func (l Layout) Files(ctx context.Context, src formats.Source, s *projector.Session) iter.Seq2[formats.File, error] {
	return func(yield func(formats.File, error) bool) {
		v := newView(src, s, l.open())
		paths, err := v.paths(ctx)
		if err != nil {
			yield(formats.File{Path: dirOf(s)}, err)
			return
		}
		sessiondir.Files(ctx, dirOf(s)+"/", paths, v.file)(yield)
	}
}

// RootFiles implements formats.Layout: files of the folder that are in no job's.
func (Layout) RootFiles(ctx context.Context, src formats.Source, root string) iter.Seq2[formats.File, error] {
	return sessiondir.ExportRoot(ctx, src, root, nil)
}

// Subject implements formats.Layout: the session of a file in a job's folder, the document
// of any other.
func (Layout) Subject(ctx context.Context, src formats.Source, root, name string) (events.Subject, bool) {
	rest, ok := strings.CutPrefix(name, jobsName+"/")
	dir, inside, below := strings.Cut(rest, "/")
	switch {
	case ok && below && inside != "" && formats.IsFileName(dir):
		return subjectOf(ctx, src, dir)
	case name == "" || slices.Contains(strings.Split(name, "/"), ""):
		return events.Subject{}, false
	}
	return documentOf(src.Namespace(), root, name), true
}

// subjectOf returns the session whose folder has a name.
func subjectOf(ctx context.Context, src formats.Source, dir string) (events.Subject, bool) {
	if id, ok := formats.ParseFileName(dir); ok {
		return events.Session(src.Namespace(), shape.SessionID(id)), true
	}
	return sessiondir.FindSession(ctx, src, func(id string) bool {
		id, ok := shape.JobID(id)
		return ok && isNameOf(dir, id)
	})
}
