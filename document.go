package tally

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// Documents is a handle on the documents of a store's namespace: named content with revisions. A document is named by
// its kind and its id, which may be any bytes; the same id in two kinds is two documents. The handle is cheap, does no
// I/O until a method is called, and is safe for concurrent use.
//
// A document that does not exist, was deleted or purged, or has expired is ErrNotFound. The kinds session, blob and
// unit are *events.InvalidError.
type Documents struct{ st *Store }

// Documents returns a handle on the documents of the store's namespace.
func (st *Store) Documents() *Documents { return &Documents{st} }

// Kind has the rules for the documents of a kind: see Config.Kinds.
type Kind struct {
	Layer string // of documents without a layer; default: none

	// Validate checks a document before it is written: an error refuses it. An error that is not *events.InvalidError
	// is wrapped in one, of the field "data". Default: every document is valid.
	Validate func(data []byte, contentType string) error
}

// Write is a new revision of a document. It replaces the old one whole: metadata that Write leaves empty are removed.
type Write struct {
	Data        []byte // any bytes, stored as they are
	ContentType string // media type; default events.ContentTypeRaw
	Title       string
	Attributes  map[string]string
	Links       []events.Link // to documents or sessions, which need not exist; a document must not be its own "parent", directly or through others
	Owner       string
	Layer       string    // default: the kind's
	ExpiresAt   time.Time // the document expires at this time of the log; zero: never

	Base events.Offset // for Save: the revision that this one replaces; 0: any
	ID   string        // of the event: repeating a write with the same ID, after log.ErrUnknown, makes no second revision; default: a new one
}

// relParent is the relation of a link to the parent document. Chains of such links have no cycle.
const relParent = "parent"

// relRenamed is the relation of the link from a renamed document to its earlier name.
const relRenamed = "renamed-from"

// Document is a revision of a document, with its content.
type Document struct {
	Subject events.Subject
	projector.Revision
	Data   []byte
	Direct Direct
}

// Direct identifies stored content: the offset of its record, and the SHA-256 of Data in lower-case hex. A revision
// that a transaction has written is not stored yet, and its Direct is zero.
type Direct struct {
	Offset events.Offset
	SHA256 string
}

// Is reports whether bytes are the stored content. Bytes that were rendered, cut or redacted on the way to a reader are
// not.
func (d Direct) Is(shown []byte) bool { return d.Offset != 0 && d.SHA256 == hashOf(shown) }

// DocumentConflictError reports that a document is not at the revision that a write was based on. It matches
// log.ErrConflict; nothing was written.
type DocumentConflictError struct {
	Subject events.Subject
	Base    events.Offset // the revision that the write was based on; 0: no document
	Have    events.Offset // the present revision; 0: no document
	SHA256  string        // of its content, lower-case hex; "": no document
	Holder  string        // of a lease on the document, see Lease; "": nobody
}

func (e *DocumentConflictError) Error() string {
	revision := func(at events.Offset) string {
		if at == 0 {
			return "none"
		}
		return at.String()
	}
	text := fmt.Sprintf("%s: want revision %s, have %s", e.Subject.Name(), revision(e.Base), revision(e.Have))
	if e.Holder != "" {
		text += fmt.Sprintf(", and %q has a lease on it", e.Holder)
	}
	return text
}

// Is reports whether target is log.ErrConflict.
func (e *DocumentConflictError) Is(target error) bool { return target == log.ErrConflict }

// Create writes a new document. If it exists, the error is ErrExists.
func (d *Documents) Create(ctx context.Context, kind, id string, w Write) (projector.Revision, error) {
	w.Base = 0
	return d.write(ctx, kind, id, w, log.At(0), func(now newest) (log.Expect, error) {
		if now.exists {
			return log.Any, fmt.Errorf("%s: %w", now.sub.Name(), ErrExists)
		}
		return log.At(now.last), nil
	})
}

// Update writes the revision after base, the offset that Read or Create returned. If the document has another revision
// now, the error is *DocumentConflictError.
func (d *Documents) Update(ctx context.Context, kind, id string, base events.Offset, w Write) (projector.Revision, error) {
	if base == 0 {
		return projector.Revision{}, &events.InvalidError{Field: "base", Reason: "missing: an update needs the revision that it replaces"}
	}
	w.Base = base
	return d.Save(ctx, kind, id, w)
}

// Save writes a document, new or not. With Write.Base it is Update.
func (d *Documents) Save(ctx context.Context, kind, id string, w Write) (projector.Revision, error) {
	if w.Base == 0 {
		return d.write(ctx, kind, id, w, log.Any, func(newest) (log.Expect, error) { return log.Any, nil })
	}
	sub, err := d.subject(kind, id)
	if err != nil {
		return projector.Revision{}, err
	}
	based := func(now newest) (log.Expect, error) { return d.basedOn(ctx, now, w.Base) }
	if d.st.bases.known(sub, w.Base) && !d.st.Log.LostBehind(sub, w.Base-1) {
		return d.write(ctx, kind, id, w, log.At(w.Base), based)
	}
	expect, err := d.decide(ctx, sub, based)
	if err != nil && w.ID != "" {
		if rev, ok := d.already(ctx, sub, w, err); ok {
			return rev, nil
		}
	}
	if err != nil {
		return projector.Revision{}, err
	}
	return d.write(ctx, kind, id, w, expect, based)
}

// Delete deletes a document; base is its revision, 0 for any. Older revisions stay readable until the document is
// purged. reason is for readers of the log.
func (d *Documents) Delete(ctx context.Context, kind, id string, base events.Offset, reason string) (log.Ack, error) {
	reason = cmp.Or(reason, "deleted")
	if err := checkReason(reason); err != nil {
		return log.Ack{}, err
	}
	sub, err := d.subject(kind, id)
	if err != nil {
		return log.Ack{}, err
	}
	e, err := d.deletion(sub, events.DocumentDeleted{Reason: reason})
	if err != nil {
		return log.Ack{}, err
	}
	decide := func(now newest) (log.Expect, error) { return d.basedOn(ctx, now, cmp.Or(base, now.rev.Offset)) }
	expect, err := d.decide(ctx, sub, decide)
	if err != nil {
		return log.Ack{}, err
	}
	return d.repeat(ctx, sub, expect, decide, func(expect log.Expect) (log.Ack, error) { return d.st.Append(ctx, sub, expect, e) })
}

// checkReason refuses the reasons that Purge and Rename use.
func checkReason(reason string) error {
	if reason == events.ReasonPurged || reason == events.ReasonRenamed {
		return &events.InvalidError{Field: "reason", Reason: fmt.Sprintf("%q is reserved for Purge and Rename", reason)}
	}
	return nil
}

// deletion returns the event that deletes a document, ready to be appended.
func (d *Documents) deletion(sub events.Subject, p events.DocumentDeleted) (events.Event, error) {
	e, err := events.New(d.st.config.Source, sub, &p)
	return d.st.Stamp(e), err
}

// Read returns a document as it is now.
func (d *Documents) Read(ctx context.Context, kind, id string) (*Document, error) {
	sub, err := d.subject(kind, id)
	if err != nil {
		return nil, err
	}
	now, err := d.st.newest(ctx, sub)
	if err == nil && !now.exists {
		err = fmt.Errorf("%s: %w", sub.Name(), ErrNotFound)
	}
	if err != nil {
		d.st.bases.forget(sub)
		return nil, err
	}
	if now.last == now.rev.Offset {
		d.st.bases.note(sub, now.last, now.rev.Meta)
	}
	return documentOf(sub, now.rev, now.data), nil
}

// bases are revisions that were the last records of their documents when this process read or wrote them. An update of
// such a revision needs no read: the log refuses it if a record came behind. Documents that expire are always read.
type bases struct {
	mu sync.Mutex // guards of
	of map[events.Subject]events.Offset
}

// maxBases bounds them; about 100 bytes each.
const maxBases = 1 << 14

func (b *bases) known(sub events.Subject, at events.Offset) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.of[sub] == at
}

// forget drops the base of a document that cannot be read any more.
func (b *bases) forget(sub events.Subject) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.of, sub)
}

func (b *bases) note(sub events.Subject, at events.Offset, meta events.DocMeta) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case meta.ExpiresAt != "":
		delete(b.of, sub)
		return
	case b.of == nil:
		b.of = make(map[events.Subject]events.Offset)
	case len(b.of) >= maxBases:
		clear(b.of) // revisions in use come back soon
	}
	b.of[sub] = at
}

func documentOf(sub events.Subject, rev projector.Revision, data []byte) *Document {
	rev.Size = len(data)
	doc := &Document{Subject: sub, Revision: rev, Data: data}
	if rev.Offset != 0 {
		doc.Direct = Direct{Offset: rev.Offset, SHA256: hashOf(data)}
	}
	return doc
}

func hashOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// subject returns the subject of a document, or an error for a kind that is not written this way.
func (d *Documents) subject(kind, id string) (events.Subject, error) {
	sub := events.Document(d.st.config.Namespace, kind, id)
	switch kind {
	case events.KindSession, events.KindBlob, events.KindUnit:
		return sub, &events.InvalidError{Field: "kind", Reason: fmt.Sprintf("%q is a reserved kind", kind)}
	}
	return sub, sub.Validate()
}

// newest is the present state of a document.
type newest struct {
	sub    events.Subject
	last   events.Offset // of its records of any type; 0: it has none
	rev    projector.Revision
	data   []byte
	exists bool
}

// newest loads the present state of a document. If its last record cannot be read, the state is unknown: the error is
// *events.DamageError.
func (st *Store) newest(ctx context.Context, sub events.Subject) (newest, error) {
	doc, err := st.loader.Document(ctx, sub, 0)
	if projector.Tolerate(err) != nil && !errors.Is(err, ErrNotFound) {
		return newest{sub: sub}, err
	}
	n := newest{sub: sub, last: doc.Head, data: doc.Data, exists: doc.Exists()}
	if last := doc.Last(); last != nil {
		n.rev = *last
		n.rev.Number = 0
	}
	if len(doc.Damaged) > 0 && slices.Max(doc.Damaged) > n.rev.Offset {
		return n, fmt.Errorf("%s: %w", sub.Name(), &events.DamageError{Offset: slices.Max(doc.Damaged)})
	}
	return n, nil
}

// basedOn returns the expectation that a document is at the base of a write.
func (d *Documents) basedOn(ctx context.Context, now newest, base events.Offset) (log.Expect, error) {
	switch {
	case !now.exists:
		return log.Any, fmt.Errorf("%s: %w", now.sub.Name(), ErrNotFound)
	case now.rev.Offset != base:
		return log.Any, d.conflict(ctx, now, base)
	}
	return log.At(now.last), nil
}

// conflict returns the error for a document that is not at the base of a write.
func (d *Documents) conflict(ctx context.Context, now newest, base events.Offset) error {
	e := &DocumentConflictError{Subject: now.sub, Base: base}
	if now.exists {
		e.Have, e.SHA256 = now.rev.Offset, hashOf(now.data)
	}
	if lease, err := d.lease(ctx, now.sub); err == nil {
		e.Holder = lease.Holder
	}
	return e
}

// decide loads a document, and returns the expectation that a function derives from it.
func (d *Documents) decide(ctx context.Context, sub events.Subject, by func(newest) (log.Expect, error)) (log.Expect, error) {
	now, err := d.st.newest(ctx, sub)
	if err != nil {
		return log.Any, err
	}
	return by(now)
}

// repeat makes an append that rests on the present state of a document. It repeats the append if the document changed
// in between in a way that decide accepts.
func (d *Documents) repeat(ctx context.Context, sub events.Subject, expect log.Expect, decide func(newest) (log.Expect, error), put func(log.Expect) (log.Ack, error)) (log.Ack, error) {
	for try := 1; ; try++ {
		ack, err := put(expect)
		if !errors.Is(err, log.ErrConflict) {
			return ack, err
		}
		again, other := d.decide(ctx, sub, decide)
		if other != nil {
			return ack, other
		}
		if try == maxDecisions || pause(ctx, try) != nil {
			return ack, err
		}
		expect = again
	}
}

// write appends a revision of a document.
func (d *Documents) write(ctx context.Context, kind, id string, w Write, expect log.Expect, decide func(newest) (log.Expect, error)) (projector.Revision, error) {
	sub, err := d.subject(kind, id)
	if err != nil {
		return projector.Revision{}, err
	}
	e, meta, err := d.event(sub, w)
	if err != nil {
		return projector.Revision{}, err
	}
	ack, err := d.repeat(ctx, sub, expect, decide, func(expect log.Expect) (log.Ack, error) {
		guards, err := d.guards(ctx, sub, meta)
		if err != nil {
			return log.Ack{}, err
		}
		return d.guarded(ctx, log.Part{Subject: sub, Expect: expect, Events: []events.Event{e}}, guards)
	})
	if !events.IsStored(err) {
		return projector.Revision{}, err
	}
	if ack.Duplicate {
		rev, other := d.same(ctx, e, meta, ack.Last)
		return rev, cmp.Or(other, err)
	}
	d.st.bases.note(sub, ack.Last, meta)
	return revisionOf(e, meta, ack.Last), err
}

func revisionOf(e events.Event, meta events.DocMeta, at events.Offset) projector.Revision {
	return projector.Revision{Offset: at, ID: e.ID, Time: events.TimestampOf(e.Time), ContentType: e.ContentType, Size: len(e.Data), Meta: meta}
}

// guarded appends a revision, provided that other documents are unchanged.
func (d *Documents) guarded(ctx context.Context, part log.Part, guards []log.Part) (log.Ack, error) {
	if len(guards) == 0 {
		return d.st.Append(ctx, part.Subject, part.Expect, part.Events...)
	}
	acks, err := d.st.AppendAll(ctx, append([]log.Part{part}, guards...)...)
	if errors.Is(err, log.ErrGuard) { // the server of others guards only the subjects that are written
		return d.st.Append(ctx, part.Subject, part.Expect, part.Events...)
	}
	if !events.IsStored(err) {
		return log.Ack{}, err
	}
	return acks[0], err
}

// already returns the revision that an earlier write with the same id made, if the write was refused because of it.
func (d *Documents) already(ctx context.Context, sub events.Subject, w Write, refused error) (projector.Revision, bool) {
	if !errors.Is(refused, log.ErrConflict) && !errors.Is(refused, ErrNotFound) {
		return projector.Revision{}, false
	}
	e, meta, err := d.event(sub, w)
	if err != nil {
		return projector.Revision{}, false
	}
	for rec, err := range d.st.Log.Read(ctx, events.Range{Subject: sub, After: w.Base}) {
		if err == nil && rec.ID == e.ID && rec.Source == e.Source {
			rev, err := d.same(ctx, e, meta, rec.Offset)
			return rev, err == nil
		}
	}
	return projector.Revision{}, false
}

// same returns the revision of an event with the id of e. If its content differs from e, the id is taken by another
// write.
func (d *Documents) same(ctx context.Context, e events.Event, meta events.DocMeta, at events.Offset) (projector.Revision, error) {
	rec, err := d.st.Log.Record(ctx, at)
	if err == nil {
		rec, err = projector.Resolve(ctx, d.st.Log, rec, d.st.config.MaxValue)
	}
	if err != nil {
		return projector.Revision{}, err
	}
	if rec.Type != e.Type || !bytes.Equal(rec.Data, e.Data) || rec.ContentType != e.ContentType || rec.Extensions[events.ExtDoc] != e.Extensions[events.ExtDoc] {
		return projector.Revision{}, &events.InvalidError{Field: "id", Reason: fmt.Sprintf("%q is already the id of another write, at %v", e.ID, at)}
	}
	e.Time = rec.Time
	return revisionOf(e, meta, at), nil
}

// event returns the event of a write, or an error if the write is invalid.
func (d *Documents) event(sub events.Subject, w Write) (events.Event, events.DocMeta, error) {
	kind := d.st.config.Kinds[sub.Kind]
	meta := events.DocMeta{Attributes: w.Attributes, Links: w.Links, Owner: w.Owner, Layer: cmp.Or(w.Layer, kind.Layer), Base: w.Base, Title: w.Title}
	if !w.ExpiresAt.IsZero() {
		meta.ExpiresAt = events.TimestampOf(w.ExpiresAt)
	}
	e := events.Event{ID: w.ID, Source: d.st.config.Source, Type: events.TypeDocumentWritten, Subject: sub, ContentType: cmp.Or(w.ContentType, events.ContentTypeRaw), Data: w.Data}
	if kind.Validate != nil {
		if err := kind.Validate(e.Data, e.ContentType); err != nil {
			return e, meta, refusal(err)
		}
	}
	e, err := d.describe(e, meta)
	return e, meta, err
}

// describe completes the event of a document with its metadata.
func (d *Documents) describe(e events.Event, meta events.DocMeta) (events.Event, error) {
	if err := meta.Validate(); err != nil {
		return e, err
	}
	if text := meta.String(); text != "{}" {
		if len(text) > events.MaxHeaders { // before a large value is stored by reference
			return e, &log.SizeError{What: "headers", Size: len(text), Max: events.MaxHeaders}
		}
		e = e.WithExtension(events.ExtDoc, text)
	}
	return d.st.Stamp(e), nil
}

// refusal returns a validator's error as an *events.InvalidError.
func refusal(err error) error {
	if _, ok := errors.AsType[*events.InvalidError](err); ok {
		return err
	}
	return &events.InvalidError{Field: "data", Reason: err.Error()}
}
