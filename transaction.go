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

// Tx is a transaction over documents: it commits only if everything that it read is unchanged, and it writes all or
// nothing. Use it only in the function that it is passed to, in one goroutine.
type Tx struct {
	d     *Documents
	known map[events.Subject]*touched
	order []*touched // in the order of first use
	rest  []log.Part // other parts to append
}

// touched is a document that a transaction uses.
type touched struct {
	newest               // when it was read, or as the transaction has written it
	base   events.Offset // revision when it was read; 0: no document
	event  *events.Event // to be appended; nil: only read
	above  bool          // only loaded as a parent of another document
}

// Tx commits the writes of a function to documents, all or nothing. If a document that it read or wrote through the Tx,
// 100 at most, has changed before the commit, the function is run again, a limited number of times. So the function
// must have no effects except through the Tx. If the function returns an error, nothing is written. Tx returns that
// error only if the documents that the function read are still unchanged, so it never rests on a mix of states.
//
// If the attempts are used up, the error is *DocumentConflictError with the document that others changed. More than 100
// documents are an error that matches log.ErrTooLarge.
func (d *Documents) Tx(ctx context.Context, do func(*Tx) error) error {
	for try := 1; ; try++ {
		tx := &Tx{d: d, known: make(map[events.Subject]*touched)}
		err := do(tx)
		if _, own := errors.AsType[*DocumentConflictError](err); own {
			return err // of another transaction or call
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

// Read returns a document at head, or as the transaction has written it: then its offset is 0.
func (tx *Tx) Read(ctx context.Context, kind, id string) (*Document, error) {
	t, err := tx.touch(ctx, kind, id)
	if err == nil && !t.exists {
		err = fmt.Errorf("%s: %w", t.sub.Name(), ErrNotFound)
	}
	if err != nil {
		return nil, err
	}
	return documentOf(t.sub, t.rev, t.data), nil
}

// Create writes a new document. If it exists, the error is ErrExists.
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

// Update writes the next revision of an existing document.
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

// Save writes a document, new or not.
func (tx *Tx) Save(ctx context.Context, kind, id string, w Write) error {
	t, err := tx.touch(ctx, kind, id)
	if err != nil {
		return err
	}
	return tx.write(ctx, t, w)
}

// Delete deletes a document.
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

// Append adds an append to another subject, such as a session, to the transaction. The part's expectation is checked at
// the commit; if it fails, the function is run again, as for a document that others changed.
func (tx *Tx) Append(p log.Part) { tx.rest = append(tx.rest, p) }

func (tx *Tx) delete(t *touched, p events.DocumentDeleted) error {
	e, err := tx.d.deletion(t.sub, p)
	if err != nil {
		return err
	}
	t.event, t.data, t.exists = &e, nil, false
	if t.base == 0 {
		t.event = nil // this transaction wrote it, so nobody else has seen it
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

// put sets the event that writes a document.
func (tx *Tx) put(ctx context.Context, t *touched, e events.Event, meta events.DocMeta) error {
	if err := tx.d.st.checkLinks(ctx, t.sub, meta, tx.peek, tx.look); err != nil {
		return err
	}
	t.event, t.data, t.exists = &e, e.Data, true
	t.rev = revisionOf(e, meta, 0)
	return nil
}

// peek loads a document without making the commit depend on it.
func (tx *Tx) peek(ctx context.Context, sub events.Subject) (newest, error) {
	if t := tx.known[sub]; t != nil {
		return t.newest, nil
	}
	return tx.d.st.newest(ctx, sub)
}

// look loads a document. The commit requires that it is unchanged.
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

// commit appends the writes, on the condition that everything that was read is unchanged. Writes have the order of
// first use. If a server cannot guard that many documents, documents that were only loaded as parents are checked
// before the append.
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

// unchanged returns a conflict if a document that was read has changed. If none has, all of them were in this state
// together when the last one was read.
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

// conflict returns the error for the document because of which an append was refused.
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

// Rename changes the id of a document within its kind; base is its revision, 0 for any. Its history, the links to it
// and its lease move along. If a document with the new id exists, the error is ErrExists. The change is atomic: no
// reader sees the document twice, or not at all.
func (d *Documents) Rename(ctx context.Context, kind, id string, base events.Offset, to string) (projector.Revision, error) {
	if id == to {
		return projector.Revision{}, &events.InvalidError{Field: "to", Reason: fmt.Sprintf("the document is already named %q", id)}
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

// rename writes the events of a rename.
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

// moveLease moves the lease on a document, if there is one, to another. The lease and the offset that the move expects
// are of one reading, so a lease that changes hands meanwhile is a conflict.
func (tx *Tx) moveLease(ctx context.Context, from, to events.Subject) error {
	lock := tx.d.lockOf(from)
	if lock.sub.Validate() != nil {
		return nil // an id of that length has no room for a lock's prefix
	}
	left, err := tx.d.st.loader.Peek(ctx, lock.sub)
	if err != nil {
		return err
	}
	lease, err := tx.d.leaseIn(ctx, left)
	if err != nil || lease.Holder == "" {
		return err
	}
	taken, err := tx.d.st.loader.Peek(ctx, tx.d.lockOf(to).sub)
	if err != nil {
		return err
	}
	for _, change := range []struct {
		lock  *projector.Outline
		lease Lease
	}{{left, Lease{}}, {taken, lease}} {
		p, err := change.lease.payload()
		if err != nil {
			return err
		}
		e, err := events.New(tx.d.st.config.Source, change.lock.Subject(), p)
		if err != nil {
			return err
		}
		tx.rest = append(tx.rest, log.Part{Subject: change.lock.Subject(), Expect: log.At(change.lock.Offset()), Events: []events.Event{tx.d.st.Stamp(e)}})
	}
	return nil
}

// Purge removes a document for good, whether it exists or was deleted: neither it nor any of its revisions, under this
// name or an earlier one, can be read any more, nor large content that only it refers to. The bytes stay in the log's
// files. If an earlier name belongs to another document now, the error is ErrExists: purge that first. If there is
// nothing to purge, the error is ErrNotFound. A purge that was cut short can be repeated.
func (d *Documents) Purge(ctx context.Context, kind, id string) error {
	sub, err := d.subject(kind, id)
	if err != nil {
		return err
	}
	nothing := d.Tx(ctx, func(tx *Tx) error {
		list, err := d.st.history(ctx, sub)
		if err = projector.Tolerate(err); err != nil { // unreadable revisions are purged as well
			return err
		}
		return tx.purge(ctx, sub, list)
	})
	if nothing != nil && !errors.Is(nothing, ErrNotFound) {
		return nothing
	}
	// Committed: nobody can read the document. A crash from here on leaves content that can be read by its hash alone,
	// until the purge is repeated.
	names, err := d.st.namesOf(ctx, sub)
	if err != nil {
		return err
	}
	for _, doc := range names {
		purged, err := d.purgeBlobs(ctx, doc)
		if err != nil {
			return err
		}
		if purged > 0 {
			nothing = nil
		}
	}
	return nothing
}

// namesOf returns the name of a document and its earlier names, also after a purge: then only the log has them.
func (st *Store) namesOf(ctx context.Context, sub events.Subject) ([]events.Subject, error) {
	names := []events.Subject{sub}
	for n := 0; n < len(names); n++ {
		for rec, err := range st.Log.Read(ctx, events.Range{Subject: names[n]}) {
			if err != nil && !events.IsDamage(err) {
				return nil, err
			}
			meta, _ := events.ParseDocMeta(rec.Extensions[events.ExtDoc]) // a rejected record has no metadata
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

// purge purges a document under each of its names.
func (tx *Tx) purge(ctx context.Context, sub events.Subject, list []Change) error {
	for _, c := range list {
		t, err := tx.know(ctx, c.Subject)
		switch {
		case err != nil:
			return err
		case t.exists && t.sub != sub:
			return fmt.Errorf("%s, an earlier name of %s, is another document now: %w", t.sub.Name(), sub.Name(), ErrExists)
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

// purgeBlobs purges the content by reference of a purged document, unless another document refers to it. Content that
// was written again meanwhile stays.
func (d *Documents) purgeBlobs(ctx context.Context, sub events.Subject) (purged int, err error) {
	now, err := d.st.newest(ctx, sub)
	if err != nil || !now.rev.IsPurge() {
		return 0, err
	}
	head, err := d.st.Log.Head(ctx)
	if err != nil {
		return 0, err
	}
	list, err := d.st.loader.Unreferenced(ctx, sub.Namespace, []events.Subject{sub}, func(rec events.Record) events.Record {
		if rec.Subject == sub {
			rec.Event = events.Event{}
		}
		return rec
	})
	for _, blob := range list {
		have, err := d.st.loader.Document(ctx, blob, 0)
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err != nil {
			return purged, err
		}
		if err := d.purgeBlob(ctx, blob, have, head); err != nil {
			return purged, err
		}
		purged++
	}
	return purged, err
}

// purgeBlob purges the content by reference that no record up to head needs. A record behind head that refers to it may
// have been written without storing the content again.
func (d *Documents) purgeBlob(ctx context.Context, blob events.Subject, have *projector.Document, head events.Offset) error {
	needed, err := d.st.loader.Refers(ctx, blob.Namespace, blob.ID, head)
	if err != nil || needed {
		return err
	}
	e, err := d.deletion(blob, events.DocumentDeleted{Reason: events.ReasonPurged})
	if err == nil {
		_, err = d.st.Append(ctx, blob, log.At(have.Head), e)
	}
	if errors.Is(err, log.ErrConflict) {
		return nil
	}
	if err == nil {
		needed, err = d.st.loader.Refers(ctx, blob.Namespace, blob.ID, head)
	}
	if err == nil && needed { // written between the two: a crash here loses it
		_, err = d.st.putBlob(ctx, blob.Namespace, have.Data)
	}
	return err
}
