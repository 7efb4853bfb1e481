package catalog

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
)

// document is a row of a document with its links. Of the revisions it holds the newest.
type document struct {
	projector.Document
	row      projector.DocumentListed
	expires  events.Timestamp // in the format that compares as text; "": never
	updated  events.Timestamp
	rejected int

	links  []events.Link // of the newest revision; nil if the revision was read from its row
	linked int           // number of links
	isRow  bool          // the table has a row
	stored bool          // rows of links may be stored
	moved  bool          // links differ from the stored ones
}

// renamedTo is the name of the link from a renamed document to its new name. It is the document's only link, because
// the document is deleted.
const renamedTo = "renamed-to"

func newDocument(sub events.Subject) *document {
	return &document{Document: projector.Document{Subject: sub}, row: projector.DocumentListed{Subject: sub}}
}

// applyDocument folds a record of a document.
func (c *Catalog) applyDocument(ctx context.Context, rec events.Record) error {
	d, err := c.document(ctx, rec.Subject)
	if err != nil {
		return c.wrap(err)
	}
	c.held += int64(len(rec.Extensions[events.ExtDoc]))
	d.apply(rec)
	last := d.Last()
	c.purged = c.purged || last != nil && last.Offset == rec.Offset && last.IsPurge()
	return nil
}

func (d *document) apply(rec events.Record) {
	d.Data = nil
	d.Document.Apply(rec)
	if d.row.First == 0 {
		d.row.First = rec.Offset
	}
	d.row.Last = rec.Offset
	d.rejected += len(d.Rejected)
	d.Rejected = nil
	last := d.Last()
	if last == nil || last.Offset != rec.Offset {
		return // it is not a revision
	}
	if last.IsPurge() {
		d.row, d.rejected = projector.DocumentListed{Subject: d.Subject, First: rec.Offset, Last: rec.Offset}, 0
	}
	d.revise(last, rec)
	d.Revisions, d.Data = []projector.Revision{*last}, nil
}

// revise updates the row from the newest revision.
func (d *document) revise(last *projector.Revision, rec events.Record) {
	r := &d.row
	r.Revisions++
	r.ContentType, r.Bytes, r.SHA256 = last.ContentType, int64(last.Size), ""
	r.Deleted, r.Reason, r.RenamedTo = last.Deleted, last.Reason, last.RenamedTo
	d.updated, d.expires = last.Time, ""
	if last.Deleted {
		d.link(renameOf(d.Subject.Namespace, last))
		return
	}
	r.Title, r.Owner, r.Layer, r.SHA256 = last.Meta.Title, last.Meta.Owner, last.Meta.Layer, sumOf(rec)
	if at, ok := last.Meta.ExpiresAt.Time(); ok {
		d.expires = events.TimestampOf(at)
	}
	d.link(linksOf(d.Subject.Namespace, last.Meta.Links))
}

// sumOf returns the SHA-256 of a document's content. The id of a blob is its hash.
func sumOf(rec events.Record) string {
	if rec.Subject.Kind == events.KindBlob {
		return rec.Subject.ID
	}
	sum := sha256.Sum256(rec.Data)
	return hex.EncodeToString(sum[:])
}

// linksOf returns the links sorted, in canonical form, without duplicates.
func linksOf(ns string, links []events.Link) []events.Link {
	var list []events.Link
	for _, l := range links {
		if to, err := events.ParseSubject(ns, l.To); err == nil {
			list = append(list, events.Link{Rel: l.Rel, To: to.String()})
		}
	}
	slices.SortFunc(list, func(a, b events.Link) int { return cmp.Or(strings.Compare(a.Rel, b.Rel), strings.Compare(a.To, b.To)) })
	return slices.Compact(list)
}

// renameOf returns the link of a rename, or nil if the deletion is not a rename.
func renameOf(ns string, last *projector.Revision) []events.Link {
	to, _, err := last.RenamedTo.Parse(ns)
	if err != nil {
		return nil
	}
	return []events.Link{{Rel: renamedTo, To: to.String()}}
}

func (d *document) link(links []events.Link) {
	d.links, d.linked, d.moved = links, len(links), true
}

// document returns the folded state of a document.
func (c *Catalog) document(ctx context.Context, sub events.Subject) (*document, error) {
	if d := c.documents[sub]; d != nil {
		return d, nil
	}
	d := newDocument(sub)
	found, err := c.find(ctx, "SELECT "+documentColumns+" FROM documents{set} WHERE namespace=? AND kind=? AND id=?", []any{sub.Namespace, sub.Kind, sub.ID}, d.columns())
	if err != nil {
		return nil, err
	}
	if found && d.row.Revisions > 0 {
		d.Revisions = []projector.Revision{{Deleted: d.row.Deleted}} // the next revision depends on nothing else
	}
	d.isRow, d.stored = found, d.linked > 0
	c.documents[sub] = d
	return d, nil
}

func (c *Catalog) storeDocument(ctx context.Context, d *document) error {
	if err := c.put(ctx, "documents", valuesOf(d.columns())...); err != nil {
		return err
	}
	sub := d.Subject
	if d.stored && d.moved {
		if err := c.run(ctx, "DELETE FROM links{set} WHERE namespace=? AND kind=? AND id=?", sub.Namespace, sub.Kind, sub.ID); err != nil {
			return err
		}
	}
	for _, l := range d.links {
		if err := c.put(ctx, "links", sub.Namespace, sub.Kind, sub.ID, l.Rel, l.To); err != nil {
			return err
		}
	}
	return nil
}

// documentColumns are in the order of columns.
const documentColumns = `namespace, kind, id, title, content_type, bytes, sha256, owner, layer, expires_at, links, revisions, rejected,
	deleted, reason, renamed_to, first_offset, head_offset, updated_at`

// columns returns pointers to the stored columns of a document.
func (d *document) columns() []any {
	r := &d.row
	return []any{&r.Subject.Namespace, &r.Subject.Kind, &r.Subject.ID, &r.Title, &r.ContentType, &r.Bytes, &r.SHA256, &r.Owner, &r.Layer, &d.expires,
		&d.linked, &r.Revisions, &d.rejected, &r.Deleted, &r.Reason, &r.RenamedTo, offset(&r.First), offset(&r.Last), &d.updated}
}

// listed returns the row in the form of a list entry.
func (d *document) listed() projector.DocumentListed {
	r := d.row
	r.ExpiresAt, r.UpdatedAt = timeOfText(d.expires), timeOfText(d.updated)
	return r
}

func timeOfText(t events.Timestamp) time.Time {
	at, _ := t.Time()
	return at
}
