package catalog

import (
	"context"
	"strings"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
)

// dueKey identifies a due entry. A subject may have several.
type dueKey struct {
	what    string
	subject events.Subject
	about   events.Offset
	number  int // of the entry within the record
}

// due stores the due entry, or removes it.
func (w *Work) due(ctx context.Context, d dueKey, at int64, is bool) error {
	key := []any{d.what, d.subject.Namespace, d.subject.Kind, d.subject.ID, int64(d.about), d.number}
	if !is {
		return w.run(ctx, "DELETE FROM due{set} WHERE what=? AND namespace=? AND kind=? AND id=? AND about=? AND number=?", key...)
	}
	return w.put(ctx, "due", append(key, at)...)
}

// belong sets the owner of a subject; "" means no owner. If the owner is gone, the subject becomes due.
func (w *Work) belong(ctx context.Context, what string, sub events.Subject, owner string) error {
	if owner == "" {
		if err := w.run(ctx, "DELETE FROM owned{set} WHERE namespace=? AND kind=? AND id=?", sub.Namespace, sub.Kind, sub.ID); err != nil {
			return err
		}
		return w.due(ctx, dueKey{what: what, subject: sub}, 0, false)
	}
	owner = sessionOf(owner)
	if err := w.put(ctx, "owned", what, sub.Namespace, sub.Kind, sub.ID, owner); err != nil {
		return err
	}
	var at int64
	gone, err := w.find(ctx, "SELECT at FROM gone{set} WHERE namespace=? AND owner=?", []any{sub.Namespace, owner}, []any{&at})
	if err != nil {
		return err
	}
	return w.due(ctx, dueKey{what: what, subject: sub}, at, gone)
}

// leave sets when an owner left, 0 if it is present. The subjects that it owns become due, or stop being due.
func (w *Work) leave(ctx context.Context, ns, owner string, at int64) error {
	if at == 0 {
		if err := w.run(ctx, "DELETE FROM gone{set} WHERE namespace=? AND owner=?", ns, owner); err != nil {
			return err
		}
		return w.run(ctx, `DELETE FROM due{set} WHERE (what, namespace, kind, id, about, number) IN
			(SELECT what, namespace, kind, id, 0, 0 FROM owned{set} WHERE namespace=? AND owner=?)`, ns, owner)
	}
	if err := w.put(ctx, "gone", ns, owner, at); err != nil {
		return err
	}
	return w.run(ctx, "INSERT OR REPLACE INTO due{set} SELECT what, namespace, kind, id, 0, 0, ? FROM owned{set} WHERE namespace=? AND owner=?", at, ns, owner)
}

const (
	agentPrefix = events.KindAgent + "/"
	flowPrefix  = events.KindFlow + "/"
)

// sessionOf returns the session of an owner. Flows name their session; documents and items name the id of an agent.
func sessionOf(owner string) string {
	if strings.HasPrefix(owner, agentPrefix) || strings.HasPrefix(owner, flowPrefix) {
		return owner
	}
	return agentPrefix + owner
}

// millis returns a time in Unix milliseconds, rounded up, so that an entry is never due too early.
func millis(t time.Time) int64 {
	ms := t.UnixMilli()
	if t.After(time.UnixMilli(ms)) {
		ms++
	}
	return ms
}

// kindOverlay is the kind of documents that replace others for one agent.
const kindOverlay = "overlay"

// documentFold returns the effect of a document's record: its newest revision determines the expiry time and the owner.
// An agent's own file belongs to that agent, regardless of the agent's owner.
func (w *Work) documentFold(f projector.Fact) func(context.Context) error {
	if f.Invalid != nil || f.Type != events.TypeDocumentWritten && f.Type != events.TypeDocumentDeleted {
		return nil
	}
	var meta events.DocMeta // zero for a deleted document
	if f.Type == events.TypeDocumentWritten {
		var err error
		if meta, err = events.ParseDocMeta(f.Extensions[events.ExtDoc]); err != nil {
			return nil
		}
	}
	what, owner, sub := projector.DueOrphan, meta.Owner, f.Subject
	switch sub.Kind {
	case kindOverlay:
		what = projector.DueOverlay
	case events.KindAgent:
		owner = ""
	}
	expires, ok := meta.ExpiresAt.Time()
	p, deleted := f.Payload.(*events.DocumentDeleted)
	return func(ctx context.Context) error {
		w.purged = w.purged || deleted && p.Reason == events.ReasonPurged
		if err := w.belong(ctx, what, sub, owner); err != nil {
			return err
		}
		return w.due(ctx, dueKey{what: projector.DueDocument, subject: sub}, millis(expires), ok)
	}
}
