package projector

import (
	"context"
	"errors"
	"fmt"

	"github.com/tallylog/tally/events"
)

// Document is a document at a position: its content and its revisions.
type Document struct {
	Subject   events.Subject
	Revisions []Revision // oldest first
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
	Reason      string           `json:"reason,omitempty"` // of a deletion
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
		if !d.Exists() && f.Payload.(*events.DocumentDeleted).Reason != events.ReasonPurged {
			d.void(rec, errors.New("there is nothing to delete"))
			return
		}
		rev.Deleted, rev.Reason = true, f.Payload.(*events.DocumentDeleted).Reason
		d.Data = nil
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
