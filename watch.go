package tally

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
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
		for !w.over && ctx.Err() == nil {
			err = w.round(ctx)
			if err != nil {
				break
			}
		}
		if err != nil && !w.over && ctx.Err() == nil {
			yield(Change{}, err)
		}
	}
}

// watcher is a watch under way.
type watcher struct {
	st    *Store
	q     projector.DocumentQuery
	link  events.Subject // of q; zero: any
	yield func(Change, error) bool
	after events.Offset // everything up to here was yielded, or was not requested
	over  bool          // yield nothing more
	line  *line
}

func (d *Documents) watcher(q projector.DocumentQuery, after events.Offset) (w *watcher, err error) {
	q.Namespace = cmp.Or(q.Namespace, d.st.config.Namespace)
	if err := events.ValidateNamespace(q.Namespace); err != nil {
		return nil, err
	}
	w = &watcher{st: d.st, q: q, after: after}
	if q.Link != "" {
		w.link, err = events.ParseSubject(q.Namespace, q.Link)
	}
	if q.Kind != "" && err == nil {
		err = events.Document(q.Namespace, q.Kind, "-").Validate()
	}
	return w, err
}

// reached is called between the steps of a watch. Tests act there.
var reached = func(point string) {}

// round yields what the log has and then new changes, until too many came while it was reading.
func (w *watcher) round(ctx context.Context) error {
	w.line = &line{more: make(chan struct{}, 1), selects: w.mayBe}
	upto, err := w.st.tail.join(ctx, w.line)
	if err != nil {
		return err
	}
	defer w.st.tail.leave(w.line)
	reached("joined")
	if err := w.catchUp(ctx, upto); err != nil || w.over {
		return err
	}
	reached("caught up")
	if w.line.isFull() {
		return nil // it came during the read: the log has it
	}
	return w.live(ctx)
}

// catchUp yields the log's changes up to an offset.
func (w *watcher) catchUp(ctx context.Context, upto events.Offset) error {
	if upto <= w.after {
		return nil
	}
	for rec, err := range w.st.Log.Follow(ctx, events.Range{Namespace: w.q.Namespace, Kind: w.q.Kind, After: w.after, Upto: upto}) {
		if err != nil && !events.IsDamage(err) {
			return err
		}
		if err == nil && !w.mayBe(rec.Subject) {
			continue
		}
		if err := w.give(ctx, noticeOf(rec, err)); err != nil || w.over {
			return err
		}
	}
	w.over = w.over || ctx.Err() != nil
	w.after = upto
	return nil
}

// live yields new changes.
func (w *watcher) live(ctx context.Context) error {
	for {
		list, full, err := w.line.take()
		for _, n := range list {
			if n.at <= w.after {
				continue
			}
			if err := w.give(ctx, n); err != nil || w.over {
				return err
			}
		}
		switch {
		case full:
			return &LaggedError{w.after}
		case err != nil:
			return err
		case len(list) > 0:
			continue
		}
		reached("waiting")
		select {
		case <-w.line.more:
		case <-ctx.Done():
			w.over = true
			return nil
		}
	}
}

// give yields a change if the query selects it.
func (w *watcher) give(ctx context.Context, n notice) error {
	if n.err != nil {
		w.after, w.over = n.at, !w.yield(Change{}, n.err)
		return nil
	}
	rev, ok := n.revision()
	if ok {
		var err error
		if ok, err = w.wants(ctx, n.rec.Subject, rev); err != nil {
			return err
		}
	}
	w.after = n.at
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

// notice is a record of a document without its data, or the damage at its offset.
type notice struct {
	at  events.Offset
	rec events.Record
	len int // of its data
	err error
}

func noticeOf(rec events.Record, err error) notice {
	if damage, ok := errors.AsType[*events.DamageError](err); ok {
		return notice{at: damage.Offset, err: err}
	}
	n := notice{at: rec.Offset, rec: rec, len: len(rec.Data)}
	if rec.Type != events.TypeDocumentDeleted { // the data of a deletion are kept: they have its reason
		n.rec.Data = nil
	}
	return n
}

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

// maxWaiting bounds how many changes wait for a watcher.
const maxWaiting = 4096

// line is the queue of changes that wait for a watcher.
type line struct {
	selects func(events.Subject) bool
	more    chan struct{} // something came

	mu   sync.Mutex // guards the fields below
	list []notice
	full bool  // a change found no room, and no more are taken
	err  error // why no more changes come
}

// offer adds a notice if there is room. It never blocks.
func (l *line) offer(n notice) {
	if n.err == nil && !l.selects(n.rec.Subject) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.full:
		return
	case len(l.list) == maxWaiting:
		l.full = true
	default:
		l.list = append(l.list, n)
	}
	l.wake()
}

// end marks that no more changes come, and why.
func (l *line) end(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
	l.wake()
}

func (l *line) wake() {
	select {
	case l.more <- struct{}{}:
	default:
	}
}

// take returns the waiting changes, whether a later one found no room, and the error after which no more come.
func (l *line) take() (list []notice, full bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	list, l.list = l.list, nil
	return list, l.full, l.err
}

func (l *line) isFull() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.full
}

// tail reads new records for all watchers of a store, while there are any.
type tail struct {
	src     *log.Log
	running sync.WaitGroup

	mu  sync.Mutex // guards the fields below
	now *following // nil: there are no watchers
}

// following is a tail while it reads. The tail's mu guards it.
type following struct {
	lines map[*line]bool
	at    events.Offset // everything up to here was offered
	stop  context.CancelFunc
}

// join makes the tail offer a line all changes behind the returned offset.
func (t *tail) join(ctx context.Context, l *line) (events.Offset, error) {
	head, err := t.src.Durable(ctx)
	if err != nil {
		return 0, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.now == nil {
		life, stop := context.WithCancel(context.Background()) // until the last watcher leaves, or the log is closed
		f := &following{lines: make(map[*line]bool), at: head, stop: stop}
		t.now = f
		t.running.Go(func() { t.follow(life, f, head) })
	}
	t.now.lines[l] = true
	return t.now.at, nil
}

// leave stops offering changes to a line.
func (t *tail) leave(l *line) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.now == nil {
		return
	}
	delete(t.now.lines, l)
	if len(t.now.lines) == 0 {
		t.now.stop()
		t.now = nil
	}
}

// follow offers new changes to all lines. When it ends, it passes its error to all of them.
func (t *tail) follow(life context.Context, f *following, after events.Offset) {
	defer f.stop()
	for rec, err := range t.src.Follow(life, events.Range{After: after}) {
		if err != nil && !events.IsDamage(err) {
			t.end(f, err)
			return
		}
		n := noticeOf(rec, err)
		t.mu.Lock()
		f.at = n.at
		for l := range f.lines {
			l.offer(n)
		}
		t.mu.Unlock()
	}
}

// end tells all lines why no more changes come. The next join starts a new tail.
func (t *tail) end(f *following, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for l := range f.lines {
		l.end(err)
	}
	if t.now == f {
		t.now = nil
	}
}

// wait returns when no tail reads any more, after the log was closed.
func (t *tail) wait() { t.running.Wait() }
