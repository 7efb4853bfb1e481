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
	// Keys returns the keys that seal and open the secrets of settings. nil, or an error
	// that is sealed.ErrNoKey: there are none. Any other error ends an import, and is a
	// problem of the files of an export that have secrets.
	Keys func() (*sealed.Ring, error)

	sessiondir.Layout[store, *jobFolder, view]
}

var (
	_ layouts.Layout  = Layout{}
	_ layouts.Chooser = Layout{}
)

// opened returns the layout with its keys, which are read now.
func (l Layout) opened() sessiondir.Layout[store, *jobFolder, view] {
	l.Store.keys = l.open()
	return l.Layout
}

// Import implements layouts.Layout. It brings a folder into a store: perstack/, the folder that
// holds it, that of the jobs, or the folder of one job. The original may go on writing meanwhile.
// Files that cannot be read are problems of the report; they are kept as they are. A setting with
// secrets does not go in without a key, nor is it kept.
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

// Entry implements layouts.Layout. What is sealed is its job's.
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
	return events.Session(src.Namespace(), shape.SessionID(job)), err == nil, nil //nolint:nilerr // it is no job's
}
