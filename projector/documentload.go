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

// lastReader is a source that finds the last record of a subject without reading those
// before it: ErrNotFound if there is none, a *events.DamageError if it cannot be read.
type lastReader interface {
	Last(ctx context.Context, sub events.Subject) (events.Record, error)
}

// loser is a source that knows of lost records: one behind an offset may have been the
// last of a subject.
type loser interface {
	LostBehind(sub events.Subject, at events.Offset) bool
}

// header is a source that says where the log ends.
type header interface {
	Head(ctx context.Context) (events.Offset, error)
}

// Document loads a document as of an offset, 0 for now: the revision there, with its data.
// The newest costs one record, however many there are. A document that was never written,
// is deleted or expired there, or is purged by now is ErrNotFound; it is returned
// nevertheless, with its Head and the deletion, if there is one. A revision that cannot be read
// is named in Damaged. If the newest one is, the one before it comes with a *HoleError.
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
				d.Head = last.Offset // nothing behind Upto is known, nor what came to stand there
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
		return nil, fmt.Errorf("load %s: %w", doc, err)
	}
	if !d.Exists() {
		d.Data = nil
		err = fmt.Errorf("load %s: %w", doc, ErrNotFound)
	}
	return d, cmp.Or(d.newestLost(), err)
}

// newestLost returns a *HoleError if records behind the newest revision that can be read cannot be
// read: one of them may be the newest.
func (d *Document) newestLost() error {
	var behind events.Offset
	if last := d.Last(); last != nil {
		behind = last.Offset
	}
	return HoleOf(d.Subject, slices.DeleteFunc(slices.Clone(d.Damaged), func(at events.Offset) bool { return at <= behind }))
}

// newestOf returns what a document is now, if its last record alone says so: if it is a
// valid write, or a purge. Any other deletion may be void, and anything else is no
// revision: then the result is nil.
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
	if d.Last() == nil { // nor is a deletion by itself
		return nil, nil
	}
	return d, nil
}

// documentAt returns the revision at an offset, or the newest before it that can be read.
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

// readRevision has a document be as one of its revisions says. It is false if that cannot
// be read.
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

// unreadable is how many records in a row are passed over, that cannot be read, to find
// the time of the log.
const unreadable = 64

// timeAt is the time of the log at an offset, 0 for now: when the newest record up to
// there was recorded. The one at last is there. A source that does not say where it ends
// is taken to end there.
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
		return time.Time{}, nil // nobody knows
	}
	return rec.Recorded, err
}
