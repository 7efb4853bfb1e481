package projector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tallylog/tally/events"
)

// lastReader is a source that finds the last record of a subject without reading the records before it. If the subject
// has no record, Last returns ErrNotFound. If the record cannot be read, it returns a *events.DamageError.
type lastReader interface {
	Last(ctx context.Context, sub events.Subject) (events.Record, error)
}

// loser is a source that tracks lost records. LostBehind reports whether a record of the subject behind an offset may
// be lost.
type loser interface {
	LostBehind(sub events.Subject, at events.Offset) bool
}

// header is a source that returns the last offset of the log.
type header interface {
	Head(ctx context.Context) (events.Offset, error)
}

// Document loads a document as of an offset, 0 for now, with the data of the revision there. Reading the newest
// revision costs one record, regardless of the number of revisions. If the document was never written, is deleted or
// expired there, or has been purged since, Document returns ErrNotFound. It still returns the document, with its Head
// and the deletion, if any. Damaged names each revision that cannot be read. If the newest revision cannot be read,
// Document returns the one before it with a *HoleError.
func (l *Loader) Document(ctx context.Context, doc events.Subject, at events.Offset) (*Document, error) {
	var d *Document
	var err error
	at = l.bounded(at)
	if at == 0 || at == l.Upto {
		d, err = l.newestOf(ctx, doc)
	}
	if d != nil && at != 0 && d.Head > at {
		d = nil
	}
	if d == nil && err == nil {
		if d, err = l.documentAt(ctx, doc, at); err == nil && l.Upto != 0 && d.Head > l.Upto {
			d.Head = 0
			if last := d.Last(); last != nil {
				d.Head = last.Offset // records behind Upto, and a revision written there, are out of view
			}
		}
	}
	if err == nil && d.Exists() && doc.Kind == events.KindBlob { // a record may hold a part
		d.Data, err = Blob(ctx, l.Source, doc.Namespace, doc.ID, l.maxValue())
		d.Last().Size = len(d.Data)
	}
	if err == nil && d.Exists() && d.Last().Meta.ExpiresAt != "" {
		var now time.Time
		now, err = l.timeAt(ctx, at, d.Last().Offset)
		d.Expired = err == nil && d.Last().expired(now)
	}
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", doc.Name(), err)
	}
	if !d.Exists() {
		d.Data = nil
		err = fmt.Errorf("load %s: %w", doc.Name(), ErrNotFound)
	}
	return d, cmp.Or(d.newestLost(), err)
}

// newestLost returns a *HoleError if records behind the newest readable revision cannot be read. One of them may be the
// newest revision.
func (d *Document) newestLost() error {
	var behind events.Offset
	if last := d.Last(); last != nil {
		behind = last.Offset
	}
	return HoleOf(d.Subject, slices.DeleteFunc(slices.Clone(d.Damaged), func(at events.Offset) bool { return at <= behind }))
}

// newestOf returns the current state of a document, if its last record alone determines it: a valid write or a purge.
// Any other deletion may be rejected, and other records are no revisions. In these cases newestOf returns nil.
func (l *Loader) newestOf(ctx context.Context, doc events.Subject) (*Document, error) {
	src, ok := l.Source.(lastReader)
	if !ok {
		return nil, nil
	}
	rec, err := src.Last(ctx, doc)
	none := errors.Is(err, ErrNotFound)
	if err != nil && !none && !events.IsDamage(err) {
		return nil, err
	}
	if lost, ok := l.Source.(loser); ok && lost.LostBehind(doc, rec.Offset) {
		return nil, nil
	}
	if none {
		return &Document{Subject: doc}, nil
	}
	if err == nil {
		rec, err = Resolve(ctx, l.Source, rec, l.maxValue())
	}
	if events.IsDamage(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	d := &Document{Subject: doc, Head: rec.Offset}
	d.Apply(rec)
	if d.Last() == nil { // a deletion alone makes no revision either
		return nil, nil
	}
	return d, nil
}

// documentAt returns the revision at an offset, or the newest readable one before it.
func (l *Loader) documentAt(ctx context.Context, doc events.Subject, at events.Offset) (*Document, error) {
	r, err := l.revisionsOf(ctx, doc)
	if err != nil {
		return nil, err
	}
	d := &Document{Subject: doc, Head: r.head}
	var failed error
	err = r.backward(ctx, at, func(c revisionChunk) bool {
		for i := len(c.Revisions) - 1; i >= 0; i-- {
			if rev := c.numbered(i); at == 0 || rev.Offset <= at {
				var done bool
				if done, failed = l.readRevision(ctx, d, rev); done || failed != nil {
					return false
				}
			}
		}
		return true
	})
	for _, lost := range r.open.Damaged {
		if at == 0 || lost <= at {
			d.Damaged = append(d.Damaged, lost)
		}
	}
	slices.Sort(d.Damaged)
	return d, errors.Join(err, failed)
}

// readRevision sets the document to one of its revisions. It returns false if the revision cannot be read.
func (l *Loader) readRevision(ctx context.Context, d *Document, rev Revision) (bool, error) {
	if rev.Deleted {
		d.Revisions = []Revision{rev}
		return true, nil
	}
	rec, err := l.Source.Record(ctx, rev.Offset)
	if err == nil {
		rec, err = Resolve(ctx, l.Source, rec, l.maxValue())
	}
	if events.IsDamage(err) || errors.Is(err, ErrNotFound) {
		d.Damaged = append(d.Damaged, rev.Offset)
		return false, nil
	}
	if err != nil {
		return false, err
	}
	d.Apply(rec)
	d.Last().Number = rev.Number
	return true, nil
}

// unreadable is the number of consecutive unreadable records that the search for the log's time skips.
const unreadable = 64

// timeAt returns the log's time at an offset, 0 for now: when the newest record up to there was recorded. The record at
// last exists. If the source has no Head method, timeAt treats last as the end of the log.
func (l *Loader) timeAt(ctx context.Context, at, last events.Offset) (time.Time, error) {
	if at == 0 && l.Now != nil {
		return l.Now(ctx)
	}
	end := last
	if src, ok := l.Source.(header); ok {
		var err error
		if end, err = src.Head(ctx); err != nil {
			return time.Time{}, err
		}
	}
	if at != 0 {
		end = min(end, at)
	}
	for n := events.Offset(0); n < unreadable && end-n > last; n++ {
		rec, err := l.Source.Record(ctx, end-n)
		if err == nil || !events.IsDamage(err) && !errors.Is(err, ErrNotFound) {
			return rec.Recorded, err
		}
	}
	rec, err := l.Source.Record(ctx, last)
	if events.IsDamage(err) {
		return time.Time{}, nil // unknown
	}
	return rec.Recorded, err
}
