package projector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/snapshot"
)

// documentFold names the chunks of a document's revisions in snapshots. Chunks of another version are discarded.
const (
	documentFold        = "revisions"
	documentFoldVersion = 1
)

// revisionChunk holds 256 records of a document, without their data. The first reader that folds so many records writes
// it, once. It refers to the chunk before it. A purge removes all chunks before it.
type revisionChunk struct {
	After     events.Offset `json:"after"`  // the last record of the previous chunk; 0: this is the first
	Before    int           `json:"before"` // number of earlier revisions
	Purge     events.Offset `json:"purge"`  // the purge before all of them; 0: none
	Exists    bool          `json:"exists"` // the document exists after the last record
	Revisions []Revision    `json:"revisions"`
	Rejected  []Rejected    `json:"void,omitempty"`
}

// revisions reads the revisions of a document, newest first.
type revisions struct {
	*Loader
	sub    events.Subject
	older  []snapshot.Meta // stored chunks that were not read yet, newest first
	chunks []revisionChunk // folded or read chunks, oldest first
	into   sink            // stores full chunks; nil: they are not stored
	to     snapshot.Store  // for store: takes nothing once content was erased

	open    Document      // the records behind the chunks
	after   events.Offset // last record of the chunks
	before  int           // number of revisions up to there
	records int           // number of records in open
	head    events.Offset // the last record, valid or not
	purge   events.Offset // the purge before all of them, or their first
}

// reopen starts a new fold behind a chunk. A revision without offset represents the chunk: the effect of the next
// record depends on whether the document exists.
func (r *revisions) reopen(after events.Offset, before int, exists bool) {
	r.open = Document{Subject: r.sub, Revisions: []Revision{{Deleted: !exists}}}
	r.after, r.before, r.records = after, before, 0
}

// own returns the revisions that come from records, without the one that represents a chunk.
func (r *revisions) own() []Revision {
	if len(r.open.Revisions) > 0 && r.open.Revisions[0].Offset == 0 {
		return r.open.Revisions[1:]
	}
	return r.open.Revisions
}

// fold adds a record. Its data may be stored by reference.
func (r *revisions) fold(ctx context.Context, rec events.Record) error {
	r.open.Apply(rec)
	r.open.Data, r.head = nil, rec.Offset
	if last := r.open.Last(); last != nil && last.Offset == rec.Offset && last.IsPurge() {
		r.older, r.chunks, r.after, r.before, r.records, r.purge = nil, nil, 0, 0, 0, rec.Offset
		r.open.Damaged = nil // the purge hides everything before it
	}
	r.records++
	if r.records < r.chunkSizes().records || len(r.open.Damaged) > 0 {
		return nil
	}
	c := revisionChunk{r.after, r.before, r.purge, r.open.Exists(), slices.Clone(r.own()), r.open.Rejected}
	r.chunks = append(r.chunks, c)
	r.reopen(rec.Offset, r.before+len(c.Revisions), c.Exists)
	if r.into == nil {
		return nil
	}
	data, err := rawjson.Marshal(c)
	if err != nil {
		return fmt.Errorf("projector: %v", err)
	}
	m := snapshot.Meta{Subject: r.sub, Fold: documentFold, Version: documentFoldVersion, Offset: rec.Offset, EventID: rec.ID}
	return r.into(ctx, snapshot.Snapshot{Meta: m, Data: data})
}

// rest folds the records behind the known ones, up to an offset, 0 for the last.
func (r *revisions) rest(ctx context.Context, upto events.Offset) error {
	for rec, err := range r.Source.Read(ctx, events.Range{Subject: r.sub, After: r.after, Upto: upto}) {
		if err == nil && rec.Type != events.TypeDocumentWritten {
			rec, err = Resolve(ctx, r.Source, rec, r.maxValue())
		}
		if damage, ok := errors.AsType[*events.DamageError](err); ok {
			r.open.Damaged, r.head = append(r.open.Damaged, damage.Offset), damage.Offset
			continue
		}
		if err == nil {
			err = r.fold(ctx, rec)
		}
		if err != nil {
			return fmt.Errorf("load %s: %w", r.sub.Name(), err)
		}
	}
	return nil
}

// revisionsOf folds the records of a document that are not in stored chunks.
func (l *Loader) revisionsOf(ctx context.Context, sub events.Subject) (*revisions, error) {
	r := &revisions{Loader: l, sub: sub}
	r.reopen(0, 0, false)
	if l.Snapshots != nil && !l.afresh {
		r.begin(ctx)
		if !l.ReadOnly {
			r.into, r.to = r.store, l.since()
		}
	}
	before := r.purge
	if err := r.rest(ctx, 0); err != nil {
		return nil, err
	}
	if r.purge != before {
		l.forgetRevisions(ctx, sub, r.purge)
	}
	return r, nil
}

// forgetRevisions removes the stored chunks of a document from before a purge.
func (l *Loader) forgetRevisions(ctx context.Context, sub events.Subject, purged events.Offset) {
	if l.Snapshots == nil || l.ReadOnly || l.afresh {
		return
	}
	list, err := l.Snapshots.List(ctx, sub, documentFold)
	if err != nil {
		l.logger().Warn("snapshots cannot be listed", "subject", sub, "err", err)
		return
	}
	for _, m := range list {
		if m.Offset < purged {
			l.removed(ctx, m)
		}
	}
}

// store stores a chunk. If the write fails, the next reader folds the records again.
func (r *revisions) store(ctx context.Context, s snapshot.Snapshot) error {
	if err := putTo(ctx, r.to, s); err != nil {
		r.logger().Warn("snapshot cannot be written", "subject", s.Subject, "err", err)
	}
	return nil
}

// begin loads the newest stored chunk, if it is sound and belongs to this log.
func (r *revisions) begin(ctx context.Context) {
	list, err := r.Snapshots.List(ctx, r.sub, documentFold)
	if err != nil {
		r.logger().Warn("snapshots cannot be listed", "subject", r.sub, "err", err)
	}
	if len(list) == 0 {
		return
	}
	c, err := r.read(ctx, list[0])
	if err == nil {
		err = r.isOfLog(ctx, list[0])
	}
	if err != nil {
		if ctx.Err() == nil {
			r.discard(ctx, list, err)
		}
		return
	}
	r.older, r.chunks = list[1:], []revisionChunk{c}
	r.reopen(list[0].Offset, c.Before+len(c.Revisions), c.Exists)
	r.head, r.purge = list[0].Offset, c.Purge
}

func (r *revisions) isOfLog(ctx context.Context, m snapshot.Meta) error {
	rec, err := r.Source.Record(ctx, m.Offset)
	if err == nil && (rec.ID != m.EventID || rec.Subject != r.sub) {
		err = fmt.Errorf("the log has event %q of %s at %v, not %q", rec.ID, rec.Subject.Name(), m.Offset, m.EventID)
	}
	return err
}

// read reads a chunk.
func (r *revisions) read(ctx context.Context, m snapshot.Meta) (c revisionChunk, err error) {
	if m.Version != documentFoldVersion {
		return c, fmt.Errorf("made by version %d of the fold, this is %d", m.Version, documentFoldVersion)
	}
	if kept, ok := r.cache.get(m.Hash).(revisionChunk); ok {
		return kept, nil
	}
	data, err := r.stored(ctx, m)
	if err == nil {
		err = rawjson.Unmarshal(data, &c)
	}
	if err == nil {
		r.cache.put(m.Hash, c, len(data))
	}
	return c, err
}

// discard removes a damaged chunk and the ones with it. They are rebuilt later.
func (r *revisions) discard(ctx context.Context, list []snapshot.Meta, reason error) {
	r.discarded(ctx, list[0], reason)
	for _, m := range list[1:] {
		r.removed(ctx, m)
	}
}

// backward calls visit with the revisions up to an offset, 0 for all, newest chunk first, until visit returns false.
func (r *revisions) backward(ctx context.Context, upto events.Offset, visit func(revisionChunk) bool) error {
	if !visit(revisionChunk{Before: r.before, Revisions: r.own(), Rejected: r.open.Rejected}) {
		return nil
	}
	for len(r.chunks) > 0 {
		for _, c := range slices.Backward(r.chunks) {
			if !visit(c) {
				return nil
			}
		}
		if err := r.further(ctx, upto); err != nil {
			return fmt.Errorf("load %s: %w", r.sub.Name(), err)
		}
	}
	return nil
}

// numbered returns the revision of a chunk at an index.
func (c revisionChunk) numbered(i int) Revision {
	rev := c.Revisions[i]
	rev.Number = c.Before + i + 1
	return rev
}

// further loads the chunks before the visited ones: the next chunk, or, if it is damaged, all of them from the log.
func (r *revisions) further(ctx context.Context, upto events.Offset) error {
	next := r.chunks[0].After
	r.chunks = nil
	if next == 0 {
		return nil
	}
	for upto != 0 && len(r.older) > 1 && r.older[1].Offset >= upto {
		r.older = r.older[1:]
		next = r.older[0].Offset // records behind it were not requested
	}
	var c revisionChunk
	err := errors.New("it is missing")
	if len(r.older) > 0 && r.older[0].Offset == next {
		c, err = r.read(ctx, r.older[0])
	}
	if err == nil {
		r.chunks, r.older = []revisionChunk{c}, r.older[1:]
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if len(r.older) > 0 {
		r.discard(ctx, r.older, err)
	}
	again := &revisions{Loader: r.Loader, sub: r.sub, into: r.into}
	again.reopen(0, 0, false)
	if err := again.rest(ctx, next); err != nil {
		return err
	}
	r.older, r.chunks = nil, again.chunks
	r.open.Damaged = append(again.open.Damaged, r.open.Damaged...)
	if open := again.own(); len(open) > 0 {
		r.chunks = append(r.chunks, revisionChunk{Before: again.before, Revisions: open, Rejected: again.open.Rejected})
	}
	return nil
}

// Revisions yields the revisions of a document up to an offset, 0 for all, newest first and without data. It reads only
// as far as the caller iterates. A purge is the last one, because it hides all before it. A document without records
// has no revisions. Instead of a record that cannot be read, Revisions yields a *events.DamageError and goes on.
func (l *Loader) Revisions(ctx context.Context, doc events.Subject, upto events.Offset) iter.Seq2[Revision, error] {
	return func(yield func(Revision, error) bool) {
		r, err := l.revisionsOf(ctx, doc)
		if err != nil {
			yield(Revision{}, err)
			return
		}
		more, last := true, cmp.Or(upto, events.MaxOffset)
		lost := func(down events.Offset) bool { // yields lost records from last down to an offset
			for _, at := range slices.Backward(slices.Sorted(slices.Values(r.open.Damaged))) {
				if at > down && at <= last && more {
					more = yield(Revision{}, &events.DamageError{Offset: at})
				}
			}
			last = down
			return more
		}
		err = r.backward(ctx, upto, func(c revisionChunk) bool {
			for i, rev := range slices.Backward(c.Revisions) {
				if upto != 0 && rev.Offset > upto {
					continue
				}
				if more = lost(rev.Offset) && yield(c.numbered(i), nil); !more {
					return false
				}
			}
			return true
		})
		if err != nil {
			yield(Revision{}, err)
		} else if more {
			lost(0)
		}
	}
}

// History returns all revisions of a document since the last purge, without data, and its rejected and damaged records.
// A document without records is ErrNotFound.
func (l *Loader) History(ctx context.Context, doc events.Subject) (*Document, error) {
	r, err := l.revisionsOf(ctx, doc)
	if err != nil {
		return nil, err
	}
	if r.head == 0 {
		return nil, fmt.Errorf("load %s: %w", doc.Name(), ErrNotFound)
	}
	d := &Document{Subject: doc, Head: r.head}
	err = r.backward(ctx, 0, func(c revisionChunk) bool {
		for i := range slices.Backward(c.Revisions) {
			d.Revisions = append(d.Revisions, c.numbered(i))
		}
		for _, v := range slices.Backward(c.Rejected) {
			d.Rejected = append(d.Rejected, v)
		}
		return true
	})
	slices.Reverse(d.Revisions)
	slices.Reverse(d.Rejected)
	d.Damaged = r.open.Damaged
	return d, err
}
