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

// Documents is a handle on the documents of a store's namespace: named content with
// revisions. A document is called by its kind and its id, which may be any bytes; the same
// id in two kinds is two documents. The handle is cheap, does no I/O until a method is
// called, and is safe for concurrent use.
//
// What is not there, was deleted or purged, or has expired, is ErrNotFound. Kinds that are
// not documents to be written so (session, blob, unit) are *events.InvalidError.
type Documents struct{ st *Store }

// Documents returns a handle on the documents of the store's namespace.
func (st *Store) Documents() *Documents { return &Documents{st} }

// Kind says what documents of a kind are like: see Config.Kinds.
type Kind struct {
	Layer string // of those that do not say; default: none

	// Validate is asked before a document is written: an error refuses it. One that is
	// not *events.InvalidError becomes one, of the field "data". Default: anything goes.
	Validate func(data []byte, contentType string) error
}

// Write is a revision of a document to be written, whole: what it does not say, the
// document has no longer.
type Write struct {
	Data        []byte // any bytes; they come back as they are
	ContentType string // media type; default events.ContentTypeRaw
	Title       string
	Attributes  map[string]string
	Links       []events.Link // to documents or sessions, which need not be there; nothing is its own "parent", nor the parent of one
	Owner       string
	Layer       string    // default: that of the kind
	ExpiresAt   time.Time // from then on, by the log's time, it is not there; zero: never

	Base events.Offset // of Save: the revision that this one replaces; 0: whatever is there
	ID   string        // of the event: the same again, after log.ErrUnknown, is one revision; default: a new one
}

// relParent is the relation of a link to the document above: no chain of them is a circle.
const relParent = "parent"

// relRenamed is the relation of the link by which a document that was renamed says from
// what.
const relRenamed = "renamed-from"

// Document is a revision of a document, with its content.
type Document struct {
	Subject events.Subject
	projector.Revision
	Data   []byte
	Direct Direct
}

// Direct says that what was read is what is stored: the record, and the SHA-256 of its
// content, in lower-case hex, which is that of Data. What a transaction has written is not
// stored yet, and its Direct is zero.
type Direct struct {
	Offset events.Offset
	SHA256 string
}

// Is reports whether bytes are what is stored. What was rendered, cut or redacted on the way
// to a reader is not: it goes without the mark.
func (d Direct) Is(shown []byte) bool { return d.Offset != 0 && d.SHA256 == hashOf(shown) }

// DocumentConflictError says that a document is not, or no longer, what a write was based
// on. It matches log.ErrConflict; nothing was written.
type DocumentConflictError struct {
	Subject events.Subject
	Base    events.Offset // the revision that the write was based on; 0: that there is none
	Have    events.Offset // the revision there is; 0: none
	SHA256  string        // of its content, lower-case hex; "": there is none
	Holder  string        // of a lease on the document, see Lease; "": nobody
}

func (e *DocumentConflictError) Error() string {
	text := fmt.Sprintf("%s: want revision %v, have %v", e.Subject.Name(), e.Base, e.Have)
	if e.Holder != "" {
		text += fmt.Sprintf(", and %q has a lease on it", e.Holder)
	}
	return text
}

// Is reports whether target is log.ErrConflict.
func (e *DocumentConflictError) Is(target error) bool { return target == log.ErrConflict }

// Create writes a document that is not there yet. One that is there is ErrExists.
func (d *Documents) Create(ctx context.Context, kind, id string, w Write) (projector.Revision, error) {
	w.Base = 0
	return d.write(ctx, kind, id, w, log.At(0), func(now newest) (log.Expect, error) {
		if now.exists {
			return log.Any, fmt.Errorf("%s: %w", now.sub.Name(), ErrExists)
		}
		return log.At(now.last), nil
	})
}

// Update writes the revision that follows another, its base, as Read and Create gave it. A
// document that has moved on is *DocumentConflictError.
func (d *Documents) Update(ctx context.Context, kind, id string, base events.Offset, w Write) (projector.Revision, error) {
	if base == 0 {
		return projector.Revision{}, &events.InvalidError{Field: "base", Reason: "an update names the revision that it replaces"}
	}
	w.Base = base
	return d.Save(ctx, kind, id, w)
}

// Save writes a document whether it is there or not. With Write.Base it is Update.
func (d *Documents) Save(ctx context.Context, kind, id string, w Write) (projector.Revision, error) {
	if w.Base == 0 {
		return d.write(ctx, kind, id, w, log.Any, func(newest) (log.Expect, error) { return log.Any, nil })
	}
	sub, err := d.subject(kind, id)
	if err != nil {
		return projector.Revision{}, err
	}
	based := func(now newest) (log.Expect, error) { return d.basedOn(ctx, now, w.Base) }
	if d.st.bases.known(sub, w.Base) {
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

// Delete takes a document away; base is its revision, 0 for whatever there is. Older
// revisions can still be read, until it is purged. reason is for those who read the log.
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

// checkReason refuses the reasons that mean more than a deletion.
func checkReason(reason string) error {
	if reason == events.ReasonPurged || reason == events.ReasonRenamed {
		return &events.InvalidError{Field: "reason", Reason: fmt.Sprintf("%q is what Purge and Rename say", reason)}
	}
	return nil
}

// deletion is the event that takes a document away, ready to be appended.
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
		return nil, err
	}
	if now.last == now.rev.Offset {
		d.st.bases.note(sub, now.last, now.rev.Meta)
	}
	return documentOf(sub, now.rev, now.data), nil
}

// bases are revisions that were the last records of their documents when this process read
// or wrote them. An update of one needs no look: the log refuses it if something came
// behind. One that expires is looked at.
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
		clear(b.of) // those in use are back soon
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

// subject names a document that is to be read or written so.
func (d *Documents) subject(kind, id string) (events.Subject, error) {
	sub := events.Document(d.st.config.Namespace, kind, id)
	switch kind {
	case events.KindSession, events.KindBlob, events.KindUnit:
		return sub, &events.InvalidError{Field: "kind", Reason: fmt.Sprintf("%q is not a kind of documents", kind)}
	}
	return sub, sub.Validate()
}

// newest is what there is of a document now.
type newest struct {
	sub    events.Subject
	last   events.Offset // of its records, whatever they are; 0: it has none
	rev    projector.Revision
	data   []byte
	exists bool
}

// newest finds out what there is of a document. If its last record cannot be read, nobody
// knows: that is *events.DamageError.
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

// basedOn is the expectation that a document is what a write is based on.
func (d *Documents) basedOn(ctx context.Context, now newest, base events.Offset) (log.Expect, error) {
	switch {
	case !now.exists:
		return log.Any, fmt.Errorf("%s: %w", now.sub.Name(), ErrNotFound)
	case now.rev.Offset != base:
		return log.Any, d.conflict(ctx, now, base)
	}
	return log.At(now.last), nil
}

// conflict says what a document is in place of what a write was based on.
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

// decide lets a function say what a write expects of a document as it is now.
func (d *Documents) decide(ctx context.Context, sub events.Subject, by func(newest) (log.Expect, error)) (log.Expect, error) {
	now, err := d.st.newest(ctx, sub)
	if err != nil {
		return log.Any, err
	}
	return by(now)
}

// repeat makes an append that rests on what is there now, and makes it again if that
// changed in between in a way that does not matter to whoever decides.
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

// guarded appends a revision on the condition that other documents are what they were.
func (d *Documents) guarded(ctx context.Context, part log.Part, guards []log.Part) (log.Ack, error) {
	if len(guards) == 0 {
		return d.st.Append(ctx, part.Subject, part.Expect, part.Events...)
	}
	acks, err := d.st.AppendAll(ctx, append([]log.Part{part}, guards...)...)
	if errors.Is(err, log.ErrGuard) { // the server of others guards what is written, and no more
		return d.st.Append(ctx, part.Subject, part.Expect, part.Events...)
	}
	if !events.IsStored(err) {
		return log.Ack{}, err
	}
	return acks[0], err
}

// already returns the revision that an earlier write with the same id made, if that is why
// the document is not what the write is based on.
func (d *Documents) already(ctx context.Context, sub events.Subject, w Write, refusal error) (projector.Revision, bool) {
	if !errors.Is(refusal, log.ErrConflict) && !errors.Is(refusal, ErrNotFound) {
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

// same returns the revision that an event with the id of this one is. If that says something
// else, the id was that of another write.
func (d *Documents) same(ctx context.Context, e events.Event, meta events.DocMeta, at events.Offset) (projector.Revision, error) {
	rec, err := d.st.Log.Record(ctx, at)
	if err == nil {
		rec, err = projector.Resolve(ctx, d.st.Log, rec, d.st.config.MaxValue)
	}
	if err != nil {
		return projector.Revision{}, err
	}
	if rec.Type != e.Type || !bytes.Equal(rec.Data, e.Data) || rec.ContentType != e.ContentType || rec.Extensions[events.ExtDoc] != e.Extensions[events.ExtDoc] {
		return projector.Revision{}, &events.InvalidError{Field: "id", Reason: fmt.Sprintf("%q is that of another write, at %v", e.ID, at)}
	}
	e.Time = rec.Time
	return revisionOf(e, meta, at), nil
}

// event makes the event of a write and refuses what must not be written.
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
		if len(text) > events.MaxHeaders { // before a large value is put where it is referred to
			return e, &log.SizeError{What: "headers", Size: len(text), Max: events.MaxHeaders}
		}
		e = e.WithExtension(events.ExtDoc, text)
	}
	return d.st.Stamp(e), nil
}

// refusal is what a validator said, as an *events.InvalidError.
func refusal(err error) error {
	if _, ok := errors.AsType[*events.InvalidError](err); ok {
		return err
	}
	return &events.InvalidError{Field: "data", Reason: err.Error()}
}
