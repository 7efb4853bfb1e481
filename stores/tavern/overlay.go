package tavern

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"strings"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/tavern/internal/layers"
)

// KindOverlay is the kind of documents in overlays.
const KindOverlay = layers.KindOverlay

// kindDoc is the kind of documents that overlays replace.
const kindDoc = "doc"

// Attributes of an overlay's document. They are reserved: a write that sets them is refused.
const (
	attributeBase    = "overlay.base"    // the replaced revision of the path, such as @12; @0: the document did not exist
	attributeDeleted = "overlay.deleted" // the path is deleted
)

// Overlay is a handle on an agent's own versions of documents of kind doc, until a changeset applies them: the
// documents overlay/<agent>/<path>, which the agent owns. It is cheap, does no I/O until a method is called, and is
// safe for concurrent use.
//
// Each path records the revision that it replaces. So a later write of others to the path is noticed when the overlay
// is applied.
type Overlay struct {
	st    *tally.Store
	agent string
}

// OverlayOf returns a handle on an agent's overlay. Case of the id does not matter.
func OverlayOf(st *tally.Store, agent string) *Overlay {
	return &Overlay{st, strings.ToLower(agent)}
}

// id returns the id of the overlay's document for a path.
func (o *Overlay) id(path string) (string, error) {
	if o.agent == "" || strings.Contains(o.agent, "/") { // else path c of agent a/b would be path b/c of agent a
		return "", &events.InvalidError{Field: "agent", Reason: fmt.Sprintf("%q has no overlay: want an id without a slash", o.agent)}
	}
	if path == "" {
		return "", &events.InvalidError{Field: "path", Reason: "it is empty"}
	}
	return o.agent + "/" + path, nil
}

// OverlayChange is the change of one document in an overlay.
type OverlayChange struct {
	Path     string
	Subject  events.Subject // document/doc/<path>
	Base     events.Offset  // the revision that the change is based on; 0: the document did not exist
	Overlay  events.Subject // document/overlay/<agent>/<path>, with the new content
	Revision events.Offset  // of it
	Deleted  bool           // the document is deleted
}

// OverlayDiff is a change with the contents.
type OverlayDiff struct {
	OverlayChange
	Before *tally.Document // at Base; nil: the document did not exist, or was purged
	After  *tally.Document // in the overlay; nil: the document is deleted
	Have   events.Offset   // the document's present revision; 0: it does not exist
}

// Conflict reports whether the document has changed since the base of the change.
func (d OverlayDiff) Conflict() bool { return d.Have != d.Base }

// Read returns a document as the agent sees it: its own version, or else the shared one. If the agent deleted it, or it
// does not exist, the error is tally.ErrNotFound.
func (o *Overlay) Read(ctx context.Context, path string) (*tally.Document, error) {
	id, err := o.id(path)
	if err != nil {
		return nil, err
	}
	docs := o.st.Documents()
	doc, err := docs.Read(ctx, KindOverlay, id)
	switch {
	case err == nil && doc.Meta.Attributes[attributeDeleted] != "":
		return nil, fmt.Errorf("%s, deleted by its agent: %w", doc.Subject.Name(), tally.ErrNotFound)
	case err == nil || !isNotThere(err):
		return doc, err
	}
	return docs.Read(ctx, kindDoc, path)
}

// Write writes a document for the agent alone. Write.Base is the revision that Read returned. If the agent sees another
// revision now, the error is *tally.DocumentConflictError. Base 0 replaces any revision. The agent is the owner. After
// log.ErrUnknown, the same write with the same Write.ID is one revision.
func (o *Overlay) Write(ctx context.Context, path string, w tally.Write) (projector.Revision, error) {
	for name := range w.Attributes {
		if name == attributeBase || name == attributeDeleted {
			return projector.Revision{}, &events.InvalidError{Field: "attributes", Reason: fmt.Sprintf("%q is reserved", name)}
		}
	}
	return o.put(ctx, path, w)
}

// Delete deletes a document for the agent alone; base is as for Write.
func (o *Overlay) Delete(ctx context.Context, path string, base events.Offset) error {
	if _, err := o.Read(ctx, path); err != nil {
		return err
	}
	_, err := o.put(ctx, path, tally.Write{Base: base, Attributes: map[string]string{attributeDeleted: "true"}})
	return err
}

// put writes the overlay's document for a path.
func (o *Overlay) put(ctx context.Context, path string, w tally.Write) (projector.Revision, error) {
	id, err := o.id(path)
	if err != nil {
		return projector.Revision{}, err
	}
	docs := o.st.Documents()
	have, err := docs.Read(ctx, KindOverlay, id)
	if err == nil && w.ID != "" && have.ID == w.ID && bytes.Equal(have.Data, w.Data) {
		return have.Revision, nil // the write is stored, and its answer was lost
	}
	if err == nil {
		w = o.labelled(w, have.Meta.Attributes[attributeBase])
		if w.Base == 0 {
			w.Base = have.Offset
		}
		return docs.Update(ctx, KindOverlay, id, w.Base, w)
	}
	if !isNotThere(err) {
		return projector.Revision{}, err
	}
	base, err := o.base(ctx, path, w.Base)
	if err != nil {
		return projector.Revision{}, err
	}
	w.Base = 0
	rev, err := docs.Create(ctx, KindOverlay, id, o.labelled(w, base.String()))
	if errors.Is(err, tally.ErrExists) { // the agent wrote it twice at the same time
		err = &tally.DocumentConflictError{Subject: events.Document(o.st.Namespace(), KindOverlay, id)}
	}
	return rev, err
}

// labelled returns a write with the overlay's attributes.
func (o *Overlay) labelled(w tally.Write, base string) tally.Write {
	w.Owner, w.Attributes = o.agent, maps.Clone(w.Attributes)
	if w.Attributes == nil {
		w.Attributes = make(map[string]string)
	}
	w.Attributes[attributeBase] = base
	return w
}

// base returns the revision of a path that a first write replaces. If read is not 0, it must be the present revision.
func (o *Overlay) base(ctx context.Context, path string, read events.Offset) (events.Offset, error) {
	doc, err := o.st.Documents().Read(ctx, kindDoc, path)
	switch {
	case err == nil && (read == 0 || read == doc.Offset):
		return doc.Offset, nil
	case err == nil:
		return 0, &tally.DocumentConflictError{Subject: doc.Subject, Base: read, Have: doc.Offset, SHA256: doc.Direct.SHA256}
	case !isNotThere(err):
		return 0, err
	case read != 0:
		return 0, &tally.DocumentConflictError{Subject: events.Document(o.st.Namespace(), kindDoc, path), Base: read}
	}
	return 0, nil
}

// Changes returns the overlay's changes, sorted by path. A changeset applies them.
func (o *Overlay) Changes(ctx context.Context) (list []OverlayChange, err error) {
	for d, err := range o.each(ctx) {
		if err != nil {
			return nil, err
		}
		list = append(list, d.OverlayChange)
	}
	return list, nil
}

// Diff yields the overlay's changes, sorted by path, with the contents. It holds the contents of one path at a time.
func (o *Overlay) Diff(ctx context.Context) iter.Seq2[OverlayDiff, error] {
	return func(yield func(OverlayDiff, error) bool) {
		for d, err := range o.each(ctx) {
			if err == nil {
				err = o.compare(ctx, &d)
			}
			if !yield(d, err) || err != nil {
				return
			}
		}
	}
}

// each yields the documents of the overlay, page by page.
func (o *Overlay) each(ctx context.Context) iter.Seq2[OverlayDiff, error] {
	return func(yield func(OverlayDiff, error) bool) {
		prefix, err := o.id("x")
		if err != nil {
			yield(OverlayDiff{}, err)
			return
		}
		q := projector.DocumentQuery{Kind: KindOverlay, Prefix: strings.TrimSuffix(prefix, "x"), Limit: 100}
		for {
			page, next, err := o.st.Documents().List(ctx, q)
			if err != nil {
				yield(OverlayDiff{}, err)
				return
			}
			for _, listed := range page {
				d, err := o.change(ctx, listed.Subject)
				if isNotThere(err) {
					continue // dropped meanwhile
				}
				if !yield(d, err) || err != nil {
					return
				}
			}
			if q.After = next; next == "" {
				return
			}
		}
	}
}

// change returns the change that a document of the overlay makes.
func (o *Overlay) change(ctx context.Context, sub events.Subject) (OverlayDiff, error) {
	doc, err := o.st.Documents().Read(ctx, KindOverlay, sub.ID)
	if err != nil {
		return OverlayDiff{}, err
	}
	path := strings.TrimPrefix(sub.ID, o.agent+"/")
	base, err := events.ParseOffset(doc.Meta.Attributes[attributeBase])
	if err != nil {
		return OverlayDiff{}, fmt.Errorf("%s: %s: %w", sub.Name(), attributeBase, err)
	}
	c := OverlayChange{Path: path, Subject: events.Document(o.st.Namespace(), kindDoc, path), Base: base, Overlay: sub, Revision: doc.Offset}
	if c.Deleted = doc.Meta.Attributes[attributeDeleted] != ""; c.Deleted {
		doc = nil
	}
	return OverlayDiff{OverlayChange: c, After: doc}, nil
}

// compare reads the contents of a change.
func (o *Overlay) compare(ctx context.Context, d *OverlayDiff) error {
	docs := o.st.Documents()
	now, err := docs.Read(ctx, kindDoc, d.Path)
	switch {
	case err == nil:
		d.Have = now.Offset
	case !isNotThere(err):
		return err
	}
	switch {
	case d.Base == 0:
	case d.Base == d.Have:
		d.Before = now
	default:
		if d.Before, err = docs.ReadAt(ctx, kindDoc, d.Path, d.Base.String()); err != nil && !isNotThere(err) {
			return err
		}
	}
	return nil
}

// Drop removes paths from the overlay, or all if no path is given. The agent sees the shared documents again. Drop
// ignores paths that the overlay does not have.
func (o *Overlay) Drop(ctx context.Context, paths ...string) error {
	if len(paths) == 0 {
		list, err := o.Changes(ctx)
		if err != nil {
			return err
		}
		for _, c := range list {
			paths = append(paths, c.Path)
		}
	}
	for _, path := range paths {
		id, err := o.id(path)
		if err != nil {
			return err
		}
		if _, err = o.st.Documents().Delete(ctx, KindOverlay, id, 0, "dropped"); err != nil && !isNotThere(err) {
			return err
		}
	}
	return nil
}
