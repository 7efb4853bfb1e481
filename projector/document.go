package projector

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tallylog/tally/events"
)

// Document is a document at a position: its content and its revisions.
type Document struct {
	Subject   events.Subject
	Revisions []Revision // oldest first; a purge is the first, and hides those before it
	Data      []byte     // of the newest revision; nil if the document is deleted
	Damaged   []events.Offset
	Void      []Void
}

// Revision is one write or deletion of a document.
type Revision struct {
	Offset      events.Offset    `json:"offset"`
	ID          string           `json:"id"` // of the event
	Time        events.Timestamp `json:"time"`
	ContentType string           `json:"contentType,omitempty"`
	Size        int              `json:"size"`
	Meta        events.DocMeta   `json:"meta"`
	Deleted     bool             `json:"deleted,omitempty"`
	Reason      string           `json:"reason,omitempty"`    // of a deletion
	RenamedTo   events.DocRef    `json:"renamedTo,omitempty"` // of a deletion: what the document is now
}

// IsPurge reports whether the revision takes away all those before it.
func (r *Revision) IsPurge() bool { return r.Deleted && r.Reason == events.ReasonPurged }

// Expired reports whether the revision says that it is not there any more at a time. One
// that names no time, or none that can be read, never expires.
func (r *Revision) Expired(at time.Time) bool {
	until, ok := r.Meta.ExpiresAt.Time()
	return ok && !until.After(at)
}

// Last returns the newest revision, nil if there is none.
func (d *Document) Last() *Revision {
	if len(d.Revisions) == 0 {
		return nil
	}
	return &d.Revisions[len(d.Revisions)-1]
}

// Exists reports whether the document is there at its position.
func (d *Document) Exists() bool { return len(d.Revisions) > 0 && !d.Last().Deleted }

// Apply folds the next record onto the document.
func (d *Document) Apply(rec events.Record) {
	f := Decode(rec)
	rev := Revision{Offset: rec.Offset, ID: rec.ID, Time: f.Happened()}
	if f.Invalid != nil {
		d.void(rec, f.Invalid)
		return
	}
	switch rec.Type {
	case events.TypeDocumentWritten:
		meta, err := events.ParseDocMeta(rec.Extensions[events.ExtDoc])
		if err != nil {
			d.void(rec, err)
			return
		}
		rev.ContentType, rev.Size, rev.Meta = rec.ContentType, len(rec.Data), meta
		d.Data = rec.Data
		if d.Data == nil {
			d.Data = []byte{}
		}
	case events.TypeDocumentDeleted:
		p := f.Payload.(*events.DocumentDeleted)
		if !d.Exists() && p.Reason != events.ReasonPurged {
			d.void(rec, errors.New("there is nothing to delete"))
			return
		}
		rev.Deleted, rev.Reason, rev.RenamedTo = true, p.Reason, p.To
		d.Data = nil
		if rev.IsPurge() {
			d.Revisions, d.Damaged, d.Void = nil, nil, nil
		}
	default:
		return // some other vocabulary's fact
	}
	d.Revisions = append(d.Revisions, rev)
}

func (d *Document) void(rec events.Record, reason error) {
	d.Void = append(d.Void, Void{rec.Offset, rec.Type, reason.Error()})
}

// Document loads a document as of an offset, 0 for now. A document that was
// never written, is deleted there, or is purged by now is ErrNotFound.
func (l *Loader) Document(ctx context.Context, doc events.Subject, at events.Offset) (*Document, error) {
	d := &Document{Subject: doc}
	purged := false
	for rec, err := range l.read(ctx, events.Range{Subject: doc}) {
		damage, damaged := errors.AsType[*events.DamageError](err)
		switch {
		case damaged && (at == 0 || damage.Offset <= at):
			d.Damaged = append(d.Damaged, damage.Offset)
		case damaged:
		case err != nil:
			return nil, fmt.Errorf("load %s: %w", doc, err)
		case at == 0 || rec.Offset <= at:
			d.Apply(rec)
		default:
			if p, ok := Decode(rec).Payload.(*events.DocumentDeleted); ok {
				purged = purged || p.Reason == events.ReasonPurged // whatever was written after it
			}
		}
	}
	if !d.Exists() || purged {
		return nil, fmt.Errorf("load %s: %w", doc, ErrNotFound)
	}
	return d, nil
}
