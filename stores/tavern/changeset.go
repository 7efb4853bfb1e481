package tavern

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/log"
)

// Change is the change of one document.
type Change struct {
	Document events.Subject // the document to write or delete
	Base     events.Offset  // revision that the change is based on; 0: the document did not exist
	Overlay  events.Subject // overlay with the new content; zero: delete the document
	Revision events.Offset  // revision of the overlay
}

// Changeset is a change of several documents that is applied wholly or not at all. It is an item of a serial queue,
// with a run of kind changeset. Its body names revisions of overlays and holds no content itself.
type Changeset struct {
	ID        string // "": one is made
	Owner     string
	Note      string
	Changes   []Change  // 1 to 99, each for another document
	ExpiresAt time.Time // from then on it is not applied, by the log's time; zero: never

	Offset events.Offset // of its turn, once it is queued
}

const (
	kindChangeset = "changeset"
	maxChanges    = 99         // a transaction has 100 subjects, and one is the queue
	overlayPrefix = "overlay." // prefix of attributes that describe an overlay
)

// storedChangeset is the body of a changeset's item.
type storedChangeset struct {
	Note    string          `json:"note,omitempty"`
	Changes []storedChange  `json:"changes"`
	Unknown rawjson.Members `json:",unknown"`
}

type storedChange struct {
	Document events.DocRef   `json:"document"`       // without a revision, which is Base
	Base     events.Offset   `json:"base,omitempty"` // absent: the document did not exist
	From     events.DocRef   `json:"from,omitempty"` // revision of an overlay; absent: delete the document
	Unknown  rawjson.Members `json:",unknown"`
}

func (cs Changeset) check(namespace string) error {
	if n := len(cs.Changes); n == 0 || n > maxChanges {
		return &events.InvalidError{Field: "changes", Reason: fmt.Sprintf("%d documents: want 1 to %d", n, maxChanges)}
	}
	known := make(map[events.Subject]bool)
	for n, c := range cs.Changes {
		wrong := func(format string, args ...any) error {
			return &events.InvalidError{Field: fmt.Sprintf("changes[%d]", n), Reason: fmt.Sprintf(format, args...)}
		}
		deletes := c.Overlay == events.Subject{}
		switch err := c.Document.Validate(); {
		case err != nil:
			return wrong("%v", err)
		case c.Document.IsSession() || c.Document.Namespace != namespace:
			return wrong("%s is not a document of namespace %s", c.Document, namespace)
		case known[c.Document]:
			return wrong("%s occurs twice", c.Document)
		case deletes && c.Base == 0:
			return wrong("%s did not exist and cannot be deleted", c.Document)
		case !deletes && (c.Revision == 0 || c.Overlay.Validate() != nil || c.Overlay.Kind != KindOverlay || c.Overlay.Namespace != namespace):
			return wrong("%s%v is not a revision of an overlay of namespace %s", c.Overlay, c.Revision, namespace)
		}
		known[c.Document] = true
	}
	return nil
}

func (cs Changeset) item() (Item, error) {
	stored := storedChangeset{Note: cs.Note}
	for _, c := range cs.Changes {
		s := storedChange{Document: events.RefOf(c.Document, 0), Base: c.Base}
		if c.Overlay != (events.Subject{}) {
			s.From = events.RefOf(c.Overlay, c.Revision)
		}
		stored.Changes = append(stored.Changes, s)
	}
	body, err := rawjson.Marshal(stored)
	return Item{ID: cs.ID, Owner: cs.Owner, ExpiresAt: cs.ExpiresAt, Body: body, kind: kindChangeset}, err
}

// changesetIn parses the changeset in an item of a queue. If the item is not a changeset, the error is
// *events.InvalidError.
func changesetIn(namespace string, it Item) (Changeset, error) {
	wrong := func(err error) (Changeset, error) {
		return Changeset{}, &events.InvalidError{Field: "body", Reason: fmt.Sprintf("item %q is not a changeset: %v", it.ID, err)}
	}
	var stored storedChangeset
	if err := rawjson.Unmarshal(it.Body, &stored); err != nil {
		return wrong(err)
	}
	cs := Changeset{ID: it.ID, Owner: it.Owner, Note: stored.Note, ExpiresAt: it.ExpiresAt, Offset: it.Offset}
	for _, s := range stored.Changes {
		c := Change{Base: s.Base}
		var err error
		if c.Document, _, err = s.Document.Parse(namespace); err == nil && s.From != "" {
			c.Overlay, c.Revision, err = s.From.Parse(namespace)
		}
		if err != nil {
			return wrong(err)
		}
		cs.Changes = append(cs.Changes, c)
	}
	if err := cs.check(namespace); err != nil {
		return wrong(err)
	}
	return cs, nil
}

// Changesets is a handle on a merge queue: a serial queue of changesets. The rules of Queue apply.
type Changesets struct{ q *Queue }

// ChangesetsOf returns a handle on a merge queue, whether it exists or not.
func ChangesetsOf(st *tally.Store, queue string) *Changesets { return &Changesets{QueueOf(st, queue)} }

// Queue returns the queue of the changesets.
func (m *Changesets) Queue() *Queue { return m.q }

// Create creates the queue. It is serial, whatever the settings say.
func (m *Changesets) Create(ctx context.Context, s QueueSettings) error {
	s.Serial = true
	return m.q.Create(ctx, s)
}

// Propose queues a changeset. Its documents are checked when it is applied. If the queue is not serial, the error is
// *events.InvalidError; if it does not exist, tally.ErrNotFound.
func (m *Changesets) Propose(ctx context.Context, cs Changeset) (Changeset, error) {
	if err := cs.check(m.q.sub.Namespace); err != nil {
		return cs, err
	}
	s, err := m.q.Settings(ctx)
	if err != nil {
		return cs, err
	}
	if !s.Serial {
		return cs, &events.InvalidError{Field: "serial", Reason: fmt.Sprintf("queue %q is not serial", m.q.id)}
	}
	it, err := cs.item()
	if err != nil {
		return cs, err
	}
	it, err = m.q.Enqueue(ctx, it)
	cs.ID, cs.Offset = it.ID, it.Offset
	return cs, err
}

// Merge is the claim on a changeset. It excludes all other merges of the queue.
type Merge struct {
	*Claim
	Changeset Changeset
	st        *tally.Store
}

// Next claims the first changeset, as Queue.Next does. It fails items that are not changesets.
func (m *Changesets) Next(ctx context.Context, worker string) (*Merge, error) {
	return m.next(ctx, func() (*Claim, error) { return m.q.Next(ctx, worker) })
}

// TryClaim claims the first changeset if it is free now, as Queue.TryClaim does.
func (m *Changesets) TryClaim(ctx context.Context, worker string) (*Merge, error) {
	return m.next(ctx, func() (*Claim, error) { return m.q.TryClaim(ctx, worker) })
}

func (m *Changesets) next(ctx context.Context, claim func() (*Claim, error)) (*Merge, error) {
	for {
		c, err := claim()
		if !events.IsStored(err) {
			return nil, err
		}
		cs, wrong := changesetIn(m.q.sub.Namespace, c.Item)
		if wrong == nil {
			return &Merge{c, cs, m.q.st}, err
		}
		if err := c.Fail(ctx, wrong.Error(), false); !events.IsStored(err) && !errors.Is(err, log.ErrConflict) {
			return nil, err
		}
	}
}

// ChangeConflict describes a document that has changed since the base of a change.
type ChangeConflict struct {
	Document events.Subject
	Base     events.Offset // that the change is based on; 0: the document did not exist
	Have     events.Offset // present revision; 0: the document does not exist
	SHA256   string        // of the present content
}

// ChangesetConflictError lists the documents that have changed since the base of a changeset. Nothing was written, and
// the claim continues: fail the changeset, or resolve the conflicts and apply it again. It matches log.ErrConflict.
type ChangesetConflictError struct {
	Queue, Changeset string
	Documents        []ChangeConflict // in the order of the changeset
}

func (e *ChangesetConflictError) Error() string {
	first := e.Documents[0]
	return fmt.Sprintf("changeset %q of queue %q: %d documents have changed since: %s is at %v, want %v", e.Changeset, e.Queue, len(e.Documents), first.Document, first.Have, first.Base)
}

// Is reports whether target is log.ErrConflict.
func (e *ChangesetConflictError) Is(target error) bool { return target == log.ErrConflict }

// Apply applies the changes and finishes the changeset, all in one transaction. If a document is not at the base of its
// change, nothing is written and the error is *ChangesetConflictError. If another worker has claimed the changeset, it
// is *tally.FencedError. A document keeps its owner and layer. Content, media type, title, attributes and links come
// from the overlay, without the attributes that begin with "overlay.". If the outcome of a call is unknown, call Apply
// again: it finds the changeset applied.
func (m *Merge) Apply(ctx context.Context) error {
	done, err := m.finish()
	if err != nil {
		return err
	}
	err = m.st.Documents().Tx(ctx, func(tx *tally.Tx) error {
		part, err := m.Part(ctx, done)
		if err != nil {
			return err
		}
		tx.Append(part)
		return m.write(ctx, tx)
	})
	if over, ok := errors.AsType[*tally.FencedError](err); ok && over.Outcome == "completed" {
		ack, again := m.st.Append(ctx, m.sub, log.Since(m.Fence, runTypes...), done)
		if events.IsStored(again) && ack.Duplicate {
			return again // this claim applied it before
		}
	}
	return err
}

// finish makes the event that lists the applied documents.
func (m *Merge) finish() (events.Event, error) {
	var applied struct {
		Applied []string `json:"applied"`
	}
	for _, c := range m.Changeset.Changes {
		applied.Applied = append(applied.Applied, c.Document.String())
	}
	result, err := rawjson.Marshal(applied)
	if err != nil {
		return events.Event{}, err
	}
	e, err := m.word("completed", &events.RunFinished{Run: m.run, Outcome: "completed", Result: result, Fence: m.Fence})
	return m.st.Stamp(e), err
}

// write adds the changes to a transaction, if each document is at the base of its change.
func (m *Merge) write(ctx context.Context, tx *tally.Tx) error {
	conflict := &ChangesetConflictError{Queue: m.q.id, Changeset: m.Changeset.ID}
	have := make([]*tally.Document, len(m.Changeset.Changes))
	for n, c := range m.Changeset.Changes {
		doc, err := tx.Read(ctx, c.Document.Kind, c.Document.ID)
		if err != nil && !errors.Is(err, tally.ErrNotFound) {
			return err
		}
		is := ChangeConflict{Document: c.Document, Base: c.Base}
		if err == nil {
			have[n], is.Have, is.SHA256 = doc, doc.Revision.Offset, doc.Direct.SHA256
		}
		if is.Have != c.Base {
			conflict.Documents = append(conflict.Documents, is)
		}
	}
	if len(conflict.Documents) > 0 {
		return conflict
	}
	for n, c := range m.Changeset.Changes {
		if err := m.change(ctx, tx, c, have[n]); err != nil {
			return err
		}
	}
	return nil
}

// change adds one change to a transaction.
func (m *Merge) change(ctx context.Context, tx *tally.Tx, c Change, have *tally.Document) error {
	if c.Overlay == (events.Subject{}) {
		return tx.Delete(ctx, c.Document.Kind, c.Document.ID, "changeset")
	}
	from, err := m.st.Documents().ReadAt(ctx, c.Overlay.Kind, c.Overlay.ID, c.Revision.String())
	if err != nil {
		return err
	}
	meta := from.Revision.Meta
	w := tally.Write{Data: from.Data, ContentType: from.Revision.ContentType, Title: meta.Title, Attributes: maps.Clone(meta.Attributes), Links: meta.Links, Owner: m.Changeset.Owner}
	maps.DeleteFunc(w.Attributes, func(name, _ string) bool { return strings.HasPrefix(name, overlayPrefix) })
	if have == nil {
		w.Layer = meta.Layer
		return tx.Create(ctx, c.Document.Kind, c.Document.ID, w)
	}
	w.Owner, w.Layer = have.Revision.Meta.Owner, have.Revision.Meta.Layer
	return tx.Update(ctx, c.Document.Kind, c.Document.ID, w)
}

// ChangesetStatus is a changeset with its item's status. State done means applied. State dead with the outcome
// stopped:expired or "" means expired.
type ChangesetStatus struct {
	Changeset Changeset
	Item      ItemStatus
	Invalid   error // why the item is not a changeset
}

// List lists changesets in the order in which they are merged, as Queue.List does.
func (m *Changesets) List(ctx context.Context, query ListQuery) (list []ChangesetStatus, next string, err error) {
	items, next, err := m.q.List(ctx, query)
	for _, i := range items {
		s := ChangesetStatus{Item: i}
		s.Changeset, s.Invalid = changesetIn(m.q.sub.Namespace, i.Item)
		list = append(list, s)
	}
	return list, next, err
}
