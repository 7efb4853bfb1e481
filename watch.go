package tally

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
)

// LaggedError reports that a watcher was too slow for the changes that came meanwhile. Everything up to After was
// yielded: a new watch can continue from there.
type LaggedError struct{ After events.Offset }

func (e *LaggedError) Error() string {
	return fmt.Sprintf("the watcher is too slow: watch again after %v", e.After)
}

// Watch yields the changes of the documents that a query selects behind an offset, 0 for all, and then new ones, in the
// order of the log, each once, until ctx is done. It survives lost connections. For a record that cannot be read it
// yields *events.DamageError. A change has no content: Change.Read loads it.
//
// Owner, Layer, Link and Rel select a change if the document has them, or had them until the change. Watch ignores
// Deleted, Newest, Limit and After of the query.
//
// These errors end it: *LaggedError if more changes came than are kept while the caller was busy; log.ErrUnavailable if
// the store is closed, or the process that owns it has ended: open the store again. After each, a watch from the last
// yielded offset continues without gap or repeat. All watchers of a process share one reader of the log. No watcher
// delays another one or a writer.
func (d *Documents) Watch(ctx context.Context, q projector.DocumentQuery, after events.Offset) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		w, err := d.watcher(q, after)
		if err != nil {
			yield(Change{}, err)
			return
		}
		w.yield = yield
		if err := w.read(ctx); err != nil {
			yield(Change{}, err)
		}
	}
}

// watcher is a watch under way.
type watcher struct {
	tailReader
	q     projector.DocumentQuery
	link  events.Subject // of q; zero: any
	yield func(Change, error) bool
}

func (d *Documents) watcher(q projector.DocumentQuery, after events.Offset) (w *watcher, err error) {
	q.Namespace = cmp.Or(q.Namespace, d.st.config.Namespace)
	if err := events.ValidateNamespace(q.Namespace); err != nil {
		return nil, err
	}
	w = &watcher{q: q}
	w.tailReader = tailReader{st: d.st, r: events.Range{Namespace: q.Namespace, Kind: q.Kind, After: after}, selects: w.mayBe, give: w.give, most: maxWaiting}
	if q.Link != "" {
		w.link, err = events.ParseSubject(q.Namespace, q.Link)
	}
	if q.Kind != "" && err == nil {
		err = events.Document(q.Namespace, q.Kind, "-").Validate()
	}
	return w, err
}

// give yields a change if the query selects it.
func (w *watcher) give(ctx context.Context, n notice) error {
	if n.err != nil {
		w.over = !w.yield(Change{}, n.err)
		return nil
	}
	rev, ok := n.revision()
	if ok {
		var err error
		if ok, err = w.wants(ctx, n.rec.Subject, rev); err != nil {
			return err
		}
	}
	if ok {
		w.over = !w.yield(Change{n.rec.Subject, rev, w.st}, nil)
	}
	return nil
}

// mayBe reports whether the query may select a subject, judging by its name alone.
func (w *watcher) mayBe(sub events.Subject) bool {
	switch sub.Kind {
	case events.KindSession, events.KindUnit:
		return false
	case events.KindBlob:
		if w.q.Kind == "" {
			return false
		}
	}
	return sub.Namespace == w.q.Namespace && (w.q.Kind == "" || sub.Kind == w.q.Kind) && strings.HasPrefix(sub.ID, w.q.Prefix)
}

// wants reports whether the query selects a change: a deletion of an existing document, or metadata that match before
// or after the change.
func (w *watcher) wants(ctx context.Context, sub events.Subject, rev projector.Revision) (bool, error) {
	if has, err := w.has(ctx, rev.Meta); has && !rev.Deleted || err != nil {
		return has, err
	}
	before, err := w.st.revisionBefore(ctx, sub, rev.Offset)
	if err != nil || rev.Deleted && !rev.IsPurge() && (before.Offset == 0 || before.Deleted) {
		return false, err
	}
	return w.has(ctx, before.Meta)
}

// has reports whether metadata match the query.
func (w *watcher) has(ctx context.Context, m events.DocMeta) (bool, error) {
	if w.q.Owner != "" && m.Owner != w.q.Owner || w.q.Layer != "" && m.Layer != w.q.Layer {
		return false, nil
	}
	if w.q.Link != "" {
		return w.st.haveLink(ctx, m.Links, w.link, w.q.Rel)
	}
	return w.q.Rel == "" || slices.ContainsFunc(m.Links, func(l events.Link) bool { return l.Rel == w.q.Rel }), nil
}

// revisionBefore returns the revision of a document before an offset, or a zero one with offset 0. Of several deletions
// in a row only the first is a revision.
func (st *Store) revisionBefore(ctx context.Context, sub events.Subject, at events.Offset) (projector.Revision, error) {
	if at <= 1 {
		return projector.Revision{}, nil
	}
	for rec, err := range events.Readable(st.Log.ReadBack(ctx, events.Range{Subject: sub, Upto: at - 1})) {
		if err != nil {
			return projector.Revision{}, err
		}
		if rev, ok := (notice{rec: rec, at: rec.Offset}).revision(); ok {
			return rev, nil
		}
	}
	return projector.Revision{}, nil
}

// maxWaiting bounds how many changes wait for a watcher.
const maxWaiting = 4096

// revision returns the revision of a record, if the record alone decides that it is one. Whether a deletion is one
// depends on the records before it.
func (n notice) revision() (projector.Revision, bool) {
	one := projector.Document{Subject: n.rec.Subject}
	if n.rec.Type == events.TypeDocumentDeleted {
		one.Revisions = []projector.Revision{{}} // assume that the document existed
	}
	before := len(one.Revisions)
	one.Apply(n.rec)
	last := one.Last()
	if last == nil || len(one.Revisions) == before && !last.IsPurge() {
		return projector.Revision{}, false
	}
	rev := *last
	rev.Size = n.len
	return rev, true
}
