package projector

import (
	"errors"
	"time"

	"github.com/tallylog/tally/events"
)

// Document is a document at a position.
type Document struct {
	Subject   events.Subject
	Revisions []Revision    // the requested revisions, oldest first
	Data      []byte        // of the newest of them; nil if the document is deleted
	Head      events.Offset // offset of its last record of any type: a writer expects it
	Expired   bool          // the newest revision has expired
	Damaged   []events.Offset
	Rejected  []Rejected
}

// Revision is one write or deletion of a document.
type Revision struct {
	Number      int              `json:"number,omitempty"` // from 1, counted since the last purge; 0: not counted
	Offset      events.Offset    `json:"offset"`
	ID          string           `json:"id"` // of the event
	Time        events.Timestamp `json:"time"`
	ContentType string           `json:"contentType,omitempty"`
	Size        int              `json:"size"`           // of the data, in bytes; 0 if the data are stored by reference and were not read
	Blob        string           `json:"blob,omitempty"` // SHA-256 of data that are stored by reference
	Meta        events.DocMeta   `json:"meta"`
	Deleted     bool             `json:"deleted,omitempty"`
	Reason      string           `json:"reason,omitempty"`    // of a deletion
	RenamedTo   events.DocRef    `json:"renamedTo,omitempty"` // of a deletion: the new name of the document
	Erased      string           `json:"erased,omitempty"`    // id of the receipt of the erasure that removed the content, which is empty
}

// IsPurge reports whether the revision removes all revisions before it.
func (r *Revision) IsPurge() bool { return r.Deleted && r.Reason == events.ReasonPurged }

// expired reports whether the revision has expired at a time. If the revision has no readable expiry time, it never
// expires.
func (r *Revision) expired(at time.Time) bool {
	until, ok := r.Meta.ExpiresAt.Time()
	return ok && !until.After(at)
}

// Last returns the newest revision, or nil.
func (d *Document) Last() *Revision {
	if len(d.Revisions) == 0 {
		return nil
	}
	return &d.Revisions[len(d.Revisions)-1]
}

// Exists reports whether the document exists at its position.
func (d *Document) Exists() bool {
	return len(d.Revisions) > 0 && !d.Last().Deleted && !d.Expired
}

// Apply folds the next record onto the document.
func (d *Document) Apply(rec events.Record) {
	f := Decode(rec)
	rev := Revision{Offset: rec.Offset, ID: rec.ID, Time: f.Happened(), Erased: rec.Erased()}
	if f.Invalid != nil {
		d.reject(rec, f.Invalid)
		return
	}
	switch rec.Type {
	case events.TypeDocumentWritten:
		meta, err := events.ParseDocMeta(rec.Extensions[events.ExtDoc])
		if err != nil {
			d.reject(rec, err)
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
			d.reject(rec, errors.New("there is nothing to delete"))
			return
		}
		rev.Deleted, rev.Reason, rev.RenamedTo = true, p.Reason, p.To
		d.Data = nil
		if rev.IsPurge() {
			d.Revisions, d.Damaged, d.Rejected = nil, nil, nil
		}
	default:
		return // an event of another vocabulary
	}
	d.Revisions = append(d.Revisions, rev)
}

func (d *Document) reject(rec events.Record, reason error) {
	d.Rejected = append(d.Rejected, Rejected{rec.Offset, rec.Type, reason.Error()})
}
