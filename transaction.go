package tally

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// maxTx bounds how many documents a transaction reads or writes.
const maxTx = 100

// Tx is a transaction over documents: what it reads is what is there when it writes, and
// it writes all or nothing. It is for the function that it is given to, and for one
// goroutine.
type Tx struct {
	d     *Documents
	known map[events.Subject]*touched
	order []*touched // in which they were touched
	rest  []log.Part // what else is to be appended
}

// touched is a document of a transaction.
type touched struct {
	newest               // when it was read, or as the transaction has written it
	base   events.Offset // of the revision that there was when it was read; 0: none
	event  *events.Event // to be appended; nil: it was read only
	above  bool          // it is above another one, and nothing else
}

// Tx makes what a function does to documents a fact, all or nothing. What it reads and
// writes through the Tx, 100 documents at most, is to be what it was when it was read;
// otherwise the function is run again, a number of times. So it does nothing but by the
// Tx. An error of the function ends the transaction, and nothing is written; it is the
// error of what was there at one time.
//
// In the end the error is *DocumentConflictError, which names the document that others
// were faster with, and more than 100 documents are an error that matches
// log.ErrTooLarge.
func (d *Documents) Tx(ctx context.Context, do func(*Tx) error) error {
	for try := 1; ; try++ {
		tx := &Tx{d: d, known: make(map[events.Subject]*touched)}
		err := do(tx)
		if _, own := errors.AsType[*DocumentConflictError](err); own {
			return err // of something else than this transaction
		}
		wrong := err
		switch {
		case wrong != nil || !tx.writes():
			err = tx.unchanged(ctx)
		default:
			err = tx.commit(ctx)
		}
		if err == nil {
			return wrong
		}
		if !errors.Is(err, log.ErrConflict) || try == maxDecisions || pause(ctx, try) != nil {
			return cmp.Or(wrong, tx.conflict(ctx, err))
		}
	}
}

// Read returns a document as it is now, or as the transaction has written it: then it has
// no offset yet.
func (tx *Tx) Read(ctx context.Context, kind, id string) (*Document, error) {
	t, err := tx.touch(ctx, kind, id)
	if err == nil && !t.exists {
		err = ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("document %s/%s: %w", kind, id, err)
	}
	return documentOf(t.sub, t.rev, t.data), nil
}

// Create writes a document that is not there yet. One that is there is ErrExists.
func (tx *Tx) Create(ctx context.Context, kind, id string, w Write) error {
	t, err := tx.touch(ctx, kind, id)
	if err == nil && t.exists {
		err = fmt.Errorf("%s: %w", t.sub.Name(), ErrExists)
	}
	if err != nil {
		return err
	}
	return tx.write(ctx, t, w)
}

// Update writes the revision of a document that follows the one there is.
func (tx *Tx) Update(ctx context.Context, kind, id string, w Write) error {
	t, err := tx.touch(ctx, kind, id)
	if err == nil && !t.exists {
		err = fmt.Errorf("%s: %w", t.sub.Name(), ErrNotFound)
	}
	if err != nil {
		return err
	}
	return tx.write(ctx, t, w)
}

// Save writes a document whether it is there or not.
func (tx *Tx) Save(ctx context.Context, kind, id string, w Write) error {
	t, err := tx.touch(ctx, kind, id)
	if err != nil {
		return err
	}
	return tx.write(ctx, t, w)
}

// Delete takes a document away.
func (tx *Tx) Delete(ctx context.Context, kind, id, reason string) error {
	t, err := tx.touch(ctx, kind, id)
	if err == nil && !t.exists {
		err = fmt.Errorf("%s: %w", t.sub.Name(), ErrNotFound)
	}
	if err != nil {
		return err
	}
	reason = cmp.Or(reason, "deleted")
	if err := checkReason(reason); err != nil {
		return err
	}
	return tx.delete(t, events.DocumentDeleted{Reason: reason})
}

// Append has the transaction append to another subject too, such as a session: all of it is
// a fact, or nothing. What the part expects is looked at when the transaction is made; if
// that is not so, the function is run again, as for a document that others wrote.
func (tx *Tx) Append(p log.Part) { tx.rest = append(tx.rest, p) }

func (tx *Tx) delete(t *touched, p events.DocumentDeleted) error {
	e, err := tx.d.deletion(t.sub, p)
	if err != nil {
		return err
	}
	t.event, t.data, t.exists = &e, nil, false
	if t.base == 0 {
		t.event = nil // this transaction has written it, and nobody else knows of it
	}
	t.rev = projector.Revision{Deleted: true, Reason: p.Reason, RenamedTo: p.To}
	return nil
}

func (tx *Tx) write(ctx context.Context, t *touched, w Write) error {
	w.Base = t.base
	e, meta, err := tx.d.event(t.sub, w)
	if err != nil {
		return err
	}
	return tx.put(ctx, t, e, meta)
}

// put has a document written as an event says.
func (tx *Tx) put(ctx context.Context, t *touched, e events.Event, meta events.DocMeta) error {
	if err := tx.d.st.checkLinks(ctx, t.sub, meta, tx.peek, tx.look); err != nil {
		return err
	}
	t.event, t.data, t.exists = &e, e.Data, true
	t.rev = revisionOf(e, meta, 0)
	return nil
}

// peek returns what there is of a document without being bound to it.
func (tx *Tx) peek(ctx context.Context, sub events.Subject) (newest, error) {
	if t := tx.known[sub]; t != nil {
		return t.newest, nil
	}
	return tx.d.st.newest(ctx, sub)
}

// look returns what there is of a document, and from then on it is to stay that.
func (tx *Tx) look(ctx context.Context, sub events.Subject) (newest, error) {
	known := tx.known[sub] != nil
	t, err := tx.know(ctx, sub)
	if err != nil {
		return newest{}, err
	}
	t.above = !known || t.above
	return t.newest, nil
}

func (tx *Tx) touch(ctx context.Context, kind, id string) (*touched, error) {
	sub, err := tx.d.subject(kind, id)
	if err != nil {
		return nil, err
	}
	t, err := tx.know(ctx, sub)
	if err == nil {
		t.above = false
	}
	return t, err
}

func (tx *Tx) know(ctx context.Context, sub events.Subject) (*touched, error) {
	if t := tx.known[sub]; t != nil {
		return t, nil
	}
	if n := len(tx.order) + 1; n > maxTx {
		return nil, &log.SizeError{Index: -1, What: "documents of a transaction", Size: n, Max: maxTx}
	}
	now, err := tx.d.st.newest(ctx, sub)
	if err != nil {
		return nil, err
	}
	t := &touched{newest: now}
	if !now.rev.Deleted {
		t.base = now.rev.Offset
	}
	tx.known[sub], tx.order = t, append(tx.order, t)
	return t, nil
}

func (tx *Tx) writes() bool {
	return len(tx.rest) > 0 || slices.ContainsFunc(tx.order, func(t *touched) bool { return t.event != nil })
}

// commit appends what is written, on the condition that all that was read is as it was.
// What is written stands in the order in which it was touched. On a server that cannot
// guard so much, what is above a document and nothing else is looked at before.
func (tx *Tx) commit(ctx context.Context) error {
	err := tx.append(ctx, func(*touched) bool { return true })
	if errors.Is(err, log.ErrGuard) && slices.ContainsFunc(tx.order, func(t *touched) bool { return t.above }) {
		if err := tx.unchanged(ctx); err != nil {
			return err
		}
		return tx.append(ctx, func(t *touched) bool { return t.event != nil || !t.above })
	}
	return err
}

func (tx *Tx) append(ctx context.Context, also func(*touched) bool) error {
	var parts []log.Part
	var placed []*touched
	for _, t := range tx.order {
		if !also(t) {
			continue
		}
		p := log.Part{Subject: t.sub, Expect: log.At(t.last)}
		if t.event != nil {
			p.Events = []events.Event{*t.event}
		}
		parts, placed = append(parts, p), append(placed, t)
	}
	acks, err := tx.d.st.AppendAll(ctx, append(parts, tx.rest...)...)
	if !events.IsStored(err) {
		return err
	}
	for i, t := range placed {
		t.rev.Offset = acks[i].Last
	}
	return err
}

// unchanged reports a conflict if something that was read is not what it was. If all of it
// still is, it was so at one time: when the last of it was read.
func (tx *Tx) unchanged(ctx context.Context) error {
	for _, t := range tx.order {
		have, err := tx.d.st.Log.Last(ctx, t.sub)
		switch damage, damaged := errors.AsType[*events.DamageError](err); {
		case damaged:
			have.Offset = damage.Offset
		case err != nil && !errors.Is(err, ErrNotFound):
			return err
		}
		if have.Offset != t.last {
			return &log.ConflictError{Subject: t.sub, Want: t.last, Have: have.Offset}
		}
	}
	return nil
}

// conflict says which document is not what the transaction had read, if that is the error.
func (tx *Tx) conflict(ctx context.Context, err error) error {
	c, ok := errors.AsType[*log.ConflictError](err)
	if !ok || tx.known[c.Subject] == nil {
		return err
	}
	now, other := tx.d.st.newest(ctx, c.Subject)
	if other != nil {
		return err
	}
	return tx.d.conflict(ctx, now, tx.known[c.Subject].base)
}

// Rename gives a document another id, of the same kind: base is its revision, 0 for
// whatever there is. Its history, the links that lead to it and the lease on it go with it.
// An id under which there is a document is ErrExists. It is one fact: nobody sees the
// document twice, or not at all.
func (d *Documents) Rename(ctx context.Context, kind, id string, base events.Offset, to string) (projector.Revision, error) {
	if id == to {
		return projector.Revision{}, &events.InvalidError{Field: "to", Reason: fmt.Sprintf("it is called %q already", id)}
	}
	var written *touched
	err := d.Tx(ctx, func(tx *Tx) error {
		from, err := tx.touch(ctx, kind, id)
		if err == nil {
			_, err = d.basedOn(ctx, from.newest, cmp.Or(base, from.rev.Offset))
		}
		if err != nil {
			return err
		}
		if written, err = tx.touch(ctx, kind, to); err == nil && written.exists {
			err = fmt.Errorf("%s: %w", written.sub.Name(), ErrExists)
		}
		if err != nil {
			return err
		}
		return tx.rename(ctx, from, written)
	})
	if err != nil {
		return projector.Revision{}, err
	}
	return written.rev, nil
}

// rename has a document go on under another name.
func (tx *Tx) rename(ctx context.Context, from, to *touched) error {
	meta := from.rev.Meta
	meta.Base = from.rev.Offset
	meta.Links = slices.DeleteFunc(slices.Clone(meta.Links), func(l events.Link) bool { return l.Rel == relRenamed })
	meta.Links = append(meta.Links, events.Link{Rel: relRenamed, To: from.sub.String()})
	e, err := tx.d.describe(events.Event{Source: tx.d.st.config.Source, Type: events.TypeDocumentWritten, Subject: to.sub, ContentType: from.rev.ContentType, Data: from.data}, meta)
	if err != nil {
		return err
	}
	if err := tx.delete(from, events.DocumentDeleted{Reason: events.ReasonRenamed, To: events.RefOf(to.sub, 0)}); err != nil {
		return err
	}
	if err := tx.put(ctx, to, e, meta); err != nil {
		return err
	}
	return tx.moveLease(ctx, from.sub, to.sub)
}

// moveLease has the lease on a document, if there is one, be that on another.
func (tx *Tx) moveLease(ctx context.Context, from, to events.Subject) error {
	lease, err := tx.d.lease(ctx, from)
	if err != nil || lease.Holder == "" {
		return err
	}
	for _, change := range []struct {
		doc   events.Subject
		lease Lease
	}{{from, Lease{}}, {to, lease}} {
		lock := tx.d.lockOf(change.doc)
		o, err := tx.d.st.loader.Peek(ctx, lock.sub)
		if err != nil {
			return err
		}
		p, err := change.lease.payload()
		if err != nil {
			return err
		}
		e, err := events.New(tx.d.st.config.Source, lock.sub, p)
		if err != nil {
			return err
		}
		tx.rest = append(tx.rest, log.Part{Subject: lock.sub, Expect: log.At(o.Offset()), Events: []events.Event{tx.d.st.Stamp(e)}})
	}
	return nil
}

// Purge takes a document away for good, whether it is there or was deleted: neither it nor
// any revision that it had, under this name or one before, can be read any more, nor large
// content that nobody else refers to. The bytes stay in the log's files. A name that it had
// before and that is another document's now is ErrExists: purge that first. With nothing to
// purge, the error is ErrNotFound; after a purge that was cut short there is.
func (d *Documents) Purge(ctx context.Context, kind, id string) error {
	sub, err := d.subject(kind, id)
	if err != nil {
		return err
	}
	nothing := d.Tx(ctx, func(tx *Tx) error {
		list, err := d.st.history(ctx, sub)
		if err = projector.Tolerate(err); err != nil { // what cannot be read is taken away as well
			return err
		}
		return tx.purge(ctx, sub, list)
	})
	if nothing != nil && !errors.Is(nothing, ErrNotFound) {
		return nothing
	}
	// Committed: nobody can read the document. A crash from here on leaves content that can
	// be read by its hash alone, until the purge is made again.
	names, err := d.st.namesOf(ctx, sub)
	if err != nil {
		return err
	}
	for _, name := range names {
		purged, err := d.purgeBlobs(ctx, name)
		if err != nil {
			return err
		}
		if purged > 0 {
			nothing = nil
		}
	}
	return nothing
}

// namesOf returns the name of a document and those that it had before, also of one that
// was purged: only the log itself knows them then.
func (st *Store) namesOf(ctx context.Context, sub events.Subject) ([]events.Subject, error) {
	names := []events.Subject{sub}
	for n := 0; n < len(names); n++ {
		for rec, err := range st.Log.Read(ctx, events.Range{Subject: names[n]}) {
			if err != nil && !events.IsDamage(err) {
				return nil, err
			}
			meta, _ := events.ParseDocMeta(rec.Extensions[events.ExtDoc]) // a void record says nothing
			for _, l := range meta.Links {
				from, err := events.ParseSubject(sub.Namespace, l.To)
				if l.Rel == relRenamed && err == nil && from.Kind == sub.Kind && len(names) <= projector.MaxRenames && !slices.Contains(names, from) {
					names = append(names, from)
				}
			}
		}
	}
	return names, nil
}

// purge purges what a document was, under each of its names.
func (tx *Tx) purge(ctx context.Context, sub events.Subject, list []Change) error {
	for _, c := range list {
		t, err := tx.know(ctx, c.Subject)
		switch {
		case err != nil:
			return err
		case t.exists && t.sub != sub:
			return fmt.Errorf("%s, which %s was before: %w", t.sub.Name(), sub.Name(), ErrExists)
		case t.event != nil || t.rev.IsPurge():
			continue
		}
		e, err := tx.d.deletion(t.sub, events.DocumentDeleted{Reason: events.ReasonPurged})
		if err != nil {
			return err
		}
		t.event = &e
	}
	return nil
}

// purgeBlobs purges the content of a purged document that is kept by reference and that
// nobody else refers to. Content that is written again meanwhile is somebody's.
func (d *Documents) purgeBlobs(ctx context.Context, sub events.Subject) (purged int, err error) {
	now, err := d.st.newest(ctx, sub)
	if err != nil || !now.rev.IsPurge() {
		return 0, err
	}
	list, err := d.st.loader.Unreferenced(ctx, sub)
	for _, sum := range list {
		blob := events.Document(sub.Namespace, events.KindBlob, sum)
		have, err := d.st.loader.Document(ctx, blob, 0)
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err != nil {
			return purged, err
		}
		e, err := d.deletion(blob, events.DocumentDeleted{Reason: events.ReasonPurged})
		if err == nil {
			_, err = d.st.Append(ctx, blob, log.At(have.Head), e)
		}
		if err != nil && !errors.Is(err, log.ErrConflict) {
			return purged, err
		}
		purged++
	}
	return purged, err
}
