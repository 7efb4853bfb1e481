package perstackdir

import (
	"context"
	"iter"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/sealed"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/internal/sessiondir"
	"github.com/tallylog/tally/stores/perstack/internal/shape"
)

// Layout is the layout of this package.
type Layout struct {
	// Keys returns the keys that seal and open the secrets of settings. If Keys is nil or returns sealed.ErrNoKey,
	// there are no keys. Any other error ends an import; in an export it is a problem of each file with secrets.
	Keys func() (*sealed.Ring, error)

	sessiondir.Layout[store, *jobFolder, view]
}

var (
	_ layouts.Layout  = Layout{}
	_ layouts.Chooser = Layout{}
)

// opened returns the layout with its keys, which it reads now.
func (l Layout) opened() sessiondir.Layout[store, *jobFolder, view] {
	l.Store.keys = l.open()
	return l.Layout
}

// Import implements layouts.Layout. It imports a folder into a store: perstack/, its parent, the folder of jobs, or the
// folder of one job. The original may write meanwhile. Unreadable files are problems of the report and stay as they
// are. A setting with secrets is neither imported nor kept without a key.
func (l Layout) Import(ctx context.Context, target layouts.Target, path string, o layouts.ImportOptions) (layouts.Report, error) {
	return l.opened().Import(ctx, target, path, o)
}

// ImportFrom implements layouts.Layout.
func (l Layout) ImportFrom(ctx context.Context, target layouts.Target, st layouts.Storage, root layouts.Root, o layouts.ImportOptions) (layouts.Report, error) {
	return l.opened().ImportFrom(ctx, target, st, root, o)
}

// Files implements layouts.Renderer.
func (l Layout) Files(ctx context.Context, src layouts.Source, s *projector.Session) iter.Seq2[layouts.File, error] {
	return l.opened().Files(ctx, src, s)
}

// EntryFiles implements layouts.Layout.
func (l Layout) EntryFiles(ctx context.Context, src layouts.Source, root layouts.Root, unit events.Subject, at string) iter.Seq2[layouts.File, error] {
	return l.opened().EntryFiles(ctx, src, root, unit, at)
}

// Entry implements layouts.Layout. A sealed document belongs to its job.
func (l Layout) Entry(ctx context.Context, src layouts.Source, root layouts.Root, sub events.Subject) (events.Subject, bool, error) {
	if sub.IsSession() {
		_, ok := shape.JobID(sub.ID)
		return sub, ok && sub.Namespace == src.Namespace(), nil
	}
	if sub.Kind != sealed.Kind || sub.Namespace != src.Namespace() {
		return l.Layout.Entry(ctx, src, root, sub)
	}
	have, err := sessiondir.Load(ctx, src, sub)
	if s, ok := have.Session(); ok || err != nil {
		return s, ok, err
	}
	if path, ok := strings.CutPrefix(sub.ID, root.Name+"/"+jobsName+"/"); ok {
		return l.EntryAt(ctx, src, root, jobsName+"/"+path)
	}
	escaped, _, _ := strings.Cut(sub.ID, "/")
	job, err := events.UnescapeID(escaped)
	return events.Session(src.Namespace(), shape.SessionID(job)), err == nil, nil //nolint:nilerr // the id is not a job's
}
