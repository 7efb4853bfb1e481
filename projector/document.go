package projector

import (
	"errors"
	"time"

	"github.com/tallylog/tally/events"
)

// Document is a document at a position.
type Document struct {
	Subject   events.Subject
	Revisions []Revision    // those that were asked for, oldest first
	Data      []byte        // of the newest of them; nil if the document is deleted
	Head      events.Offset // its last record, whatever that is: what a writer expects
	Expired   bool          // the newest revision says that it is not there any more
	Damaged   []events.Offset
	Void      []Void
}

// Revision is one write or deletion of a document.
type Revision struct {
	Number      int              `json:"number,omitempty"` // from 1; of those since a purge, if there was one. 0: not counted
	Offset      events.Offset    `json:"offset"`
	ID          string           `json:"id"` // of the event
	Time        events.Timestamp `json:"time"`
	ContentType string           `json:"contentType,omitempty"`
	Size        int              `json:"size"`           // of the data, in bytes; 0 as long as they are kept by reference and not read
	Blob        string           `json:"blob,omitempty"` // SHA-256 of data that are kept by reference
	Meta        events.DocMeta   `json:"meta"`
	Deleted     bool             `json:"deleted,omitempty"`
	Reason      string           `json:"reason,omitempty"`    // of a deletion
	RenamedTo   events.DocRef    `json:"renamedTo,omitempty"` // of a deletion: what the document is now
}

// IsPurge reports whether the revision takes away all those before it.
func (r *Revision) IsPurge() bool { return r.Deleted && r.Reason == events.ReasonPurged }

// expired reports whether the revision says that it is not there any more at a time. One
// that names no time, or none that can be read, never expires.
func (r *Revision) expired(at time.Time) bool {
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
func (d *Document) Exists() bool {
	return len(d.Revisions) > 0 && !d.Last().Deleted && !d.Expired
}

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
		rev.Blob, _ = events.ParseBlobRef(rec.Extensions[events.ExtDataRef])
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
