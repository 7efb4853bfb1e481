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

// DocumentFold names the chunks of a document's revisions, as snapshots do. Those of
// another version are discarded.
const (
	DocumentFold        = "revisions"
	documentFoldVersion = 1
)

// revisionChunk is what 256 records of a document brought, without their data. It is
// written once, by the first reader who has to fold that many, and refers to the one
// before it. A purge begins anew: the chunks before it are removed.
type revisionChunk struct {
	After     events.Offset `json:"after"`  // the last record of the chunk before; 0: this is the first
	Before    int           `json:"before"` // revisions before these
	Purge     events.Offset `json:"purge"`  // that all of them come after; 0: none
	Exists    bool          `json:"exists"` // behind the last record
	Revisions []Revision    `json:"revisions"`
	Void      []Void        `json:"void,omitempty"`
}

// revisions are the revisions of a document while they are looked at, the newest first.
type revisions struct {
	*Loader
	sub    events.Subject
	older  []snapshot.Meta // chunks that are stored and not read yet, the newest first
	chunks []revisionChunk // that were folded now, or read, the oldest first
	into   sink            // takes chunks that get full; nil: nobody

	open    Document      // what came behind the chunks
	after   events.Offset // the last record of those
	before  int           // revisions up to there
	records int           // that open is made of
	head    events.Offset // the last record, whatever became of it
	purge   events.Offset // that all of them come after, or begin with
}

// reopen begins what comes behind a chunk. What the chunk leaves is a revision without
// an offset: the next record depends on whether the document is there.
func (r *revisions) reopen(after events.Offset, before int, exists bool) {
	r.open = Document{Subject: r.sub, Revisions: []Revision{{Deleted: !exists}}}
	r.after, r.before, r.records = after, before, 0
}

// own returns the revisions of a document that it got by records.
func (r *revisions) own() []Revision {
	if len(r.open.Revisions) > 0 && r.open.Revisions[0].Offset == 0 {
		return r.open.Revisions[1:]
	}
	return r.open.Revisions
}

// fold adds a record, whose data may be kept by reference.
func (r *revisions) fold(ctx context.Context, rec events.Record) error {
	r.open.Apply(rec)
	r.open.Data, r.head = nil, rec.Offset
	if last := r.open.Last(); last != nil && last.Offset == rec.Offset && last.IsPurge() {
		r.older, r.chunks, r.after, r.before, r.records, r.purge = nil, nil, 0, 0, 0, rec.Offset
		r.open.Damaged = nil // what was before is hidden
	}
	r.records++
	if r.records < r.chunkSizes().records || len(r.open.Damaged) > 0 {
		return nil
	}
	c := revisionChunk{r.after, r.before, r.purge, r.open.Exists(), slices.Clone(r.own()), r.open.Void}
	r.chunks = append(r.chunks, c)
	r.reopen(rec.Offset, r.before+len(c.Revisions), c.Exists)
	if r.into == nil {
		return nil
	}
	data, err := rawjson.Marshal(c)
	if err != nil {
		return fmt.Errorf("projector: %v", err)
	}
	m := snapshot.Meta{Subject: r.sub, Fold: DocumentFold, Version: documentFoldVersion, Offset: rec.Offset, EventID: rec.ID}
	return r.into(ctx, snapshot.Snapshot{Meta: m, Data: data})
}

// rest folds the records behind what there is, up to one, 0 for the last.
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

// revisionsOf folds what is not stored of a document.
func (l *Loader) revisionsOf(ctx context.Context, sub events.Subject) (*revisions, error) {
	r := &revisions{Loader: l, sub: sub}
	r.reopen(0, 0, false)
	if l.Snapshots != nil && !l.afresh {
		r.begin(ctx)
		if !l.ReadOnly {
			r.into = r.store
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

// forgetRevisions removes what is stored of a document from before a purge.
func (l *Loader) forgetRevisions(ctx context.Context, sub events.Subject, purged events.Offset) {
	if l.Snapshots == nil || l.ReadOnly || l.afresh {
		return
	}
	list, err := l.Snapshots.List(ctx, sub, DocumentFold)
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

// store keeps a chunk. One that cannot be written costs the next reader time.
func (r *revisions) store(ctx context.Context, s snapshot.Snapshot) error {
	if err := r.put(ctx, s); err != nil {
		r.logger().Warn("snapshot cannot be written", "subject", s.Subject, "err", err)
	}
	return nil
}

// begin takes over what is stored, if the newest chunk is sound and of this log.
func (r *revisions) begin(ctx context.Context) {
	list, err := r.Snapshots.List(ctx, r.sub, DocumentFold)
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

// discard removes chunks of which one is unsound: they are made again.
func (r *revisions) discard(ctx context.Context, list []snapshot.Meta, reason error) {
	r.discarded(ctx, list[0], reason)
	for _, m := range list[1:] {
		r.removed(ctx, m)
	}
}

// backward calls visit with what there is up to an offset, 0 for all, the newest first,
// until that returns false.
func (r *revisions) backward(ctx context.Context, upto events.Offset, visit func(revisionChunk) bool) error {
	if !visit(revisionChunk{Before: r.before, Revisions: r.own(), Void: r.open.Void}) {
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

// further takes the chunks before those that were looked at: the next one, or if that is
// not sound, all of them, folded.
func (r *revisions) further(ctx context.Context, upto events.Offset) error {
	next := r.chunks[0].After
	r.chunks = nil
	if next == 0 {
		return nil
	}
	for upto != 0 && len(r.older) > 1 && r.older[1].Offset >= upto {
		r.older = r.older[1:]
		next = r.older[0].Offset // what came behind it is not asked for
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
		r.chunks = append(r.chunks, revisionChunk{Before: again.before, Revisions: open, Void: again.open.Void})
	}
	return nil
}

// Revisions yields the revisions of a document up to an offset, 0 for all, the newest
// first and without data: what is asked for is what is read. A purge is the last one, as
// what was before it is hidden. A document without records has none. In the place of a record that
// cannot be read there is an *events.DamageError, and the loop goes on.
func (l *Loader) Revisions(ctx context.Context, doc events.Subject, upto events.Offset) iter.Seq2[Revision, error] {
	return func(yield func(Revision, error) bool) {
		r, err := l.revisionsOf(ctx, doc)
		if err != nil {
			yield(Revision{}, err)
			return
		}
		more, last := true, cmp.Or(upto, events.MaxOffset)
		lost := func(down events.Offset) bool { // yields what is lost from last down to an offset
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

// History returns all revisions of a document since it was purged, if ever, without data,
// and what is void or damaged of it. A document without records is ErrNotFound.
func (l *Loader) History(ctx context.Context, doc events.Subject) (*Document, error) {
	r, err := l.revisionsOf(ctx, doc)
	if err != nil {
		return nil, err
	}
	if r.head == 0 {
		return nil, fmt.Errorf("load %s: %w", doc, ErrNotFound)
	}
	d := &Document{Subject: doc, Head: r.head}
	err = r.backward(ctx, 0, func(c revisionChunk) bool {
		for i := range slices.Backward(c.Revisions) {
			d.Revisions = append(d.Revisions, c.numbered(i))
		}
		for _, v := range slices.Backward(c.Void) {
			d.Void = append(d.Void, v)
		}
		return true
	})
	slices.Reverse(d.Revisions)
	slices.Reverse(d.Void)
	d.Damaged = r.open.Damaged
	return d, err
}
