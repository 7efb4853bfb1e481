package tavern

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/daemon"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// ReasonExpired and ReasonOrphaned are the reasons of documents that the janitor deleted.
const (
	ReasonExpired  = "expired"
	ReasonOrphaned = "orphaned"
)

// expired decides on a document that may have expired.
func (d *decider) expired(ctx context.Context, due daemon.Due, now time.Time) ([]Decision, error) {
	doc, rev, err := d.document(ctx, due.Subject)
	if err != nil || rev == nil {
		return nil, err
	}
	if until, ok := rev.Meta.ExpiresAt.Time(); !ok || until.After(now) {
		return []Decision{{Next: until}}, nil
	}
	part, err := deleting(doc, ReasonExpired)
	return []Decision{{Parts: []log.Part{part}, Why: ReasonExpired}}, err
}

// orphan decides on a subject whose owner may be gone.
func (d *decider) orphan(ctx context.Context, due daemon.Due, now time.Time) ([]Decision, error) {
	if queue, id, is := projector.ItemOf(due.Subject.ID); is && due.Subject.IsSession() {
		return d.orphanChangeset(ctx, QueueOf(d.st, queue), id, now)
	}
	if due.Subject.IsSession() {
		return d.orphanFlow(ctx, due.Subject, now)
	}
	doc, rev, err := d.document(ctx, due.Subject)
	if err != nil || rev == nil || doc.Subject.Kind == events.KindAgent {
		return nil, err
	}
	gone, err := d.goneSince(ctx, rev.Meta.Owner)
	if err != nil || gone.IsZero() {
		return nil, err
	}
	if at := gone.Add(d.o.Orphans); at.After(now) {
		return []Decision{{Next: at}}, nil
	}
	part, err := deleting(doc, ReasonOrphaned)
	return []Decision{{Parts: []log.Part{part}, Why: ReasonOrphaned}}, err
}

func (d *decider) orphanFlow(ctx context.Context, sub events.Subject, now time.Time) ([]Decision, error) {
	id, ok := strings.CutPrefix(sub.ID, flowSession(""))
	if !ok {
		return nil, nil
	}
	f := FlowOf(d.st, id)
	s, err := f.now(ctx)
	if errors.Is(err, tally.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	gone, err := d.goneSince(ctx, s.Run.Owner)
	if err != nil {
		return nil, err
	}
	dec, err := f.Orphaned(s, gone, d.o.Orphans, now)
	return []Decision{dec}, err
}

// orphanChangeset decides on a changeset. While a worker holds it, it stays.
func (d *decider) orphanChangeset(ctx context.Context, q *Queue, id string, now time.Time) ([]Decision, error) {
	i, of, err := q.open(ctx, id)
	if err != nil || i == nil || i.Run.Kind != kindChangeset {
		return nil, err
	}
	gone, err := d.goneSince(ctx, i.Owner)
	if err != nil || gone.IsZero() {
		return nil, err
	}
	at := gone.Add(d.o.Orphans)
	if until := time.UnixMilli(i.Until); i.Fence != 0 && until.After(at) {
		at = until
	}
	if at.After(now) {
		return []Decision{{Next: at}}, nil
	}
	result, err := failure(fmt.Sprintf("its owner, %q, is gone", i.Owner), i.Attempts)
	if err != nil {
		return nil, err
	}
	part, err := stopping(d.st.Namespace(), of, *i, &events.RunFinished{Run: i.Run, Outcome: OutcomeOrphaned, Result: result, Fence: i.Fence})
	return []Decision{{Parts: []log.Part{part}, Why: ReasonOrphaned}}, err
}

// document reads a document's metadata, or returns nil if it does not exist.
func (d *decider) document(ctx context.Context, sub events.Subject) (*projector.Document, *projector.Revision, error) {
	doc, err := d.st.Loader().History(ctx, sub)
	if errors.Is(err, tally.ErrNotFound) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	if last := doc.Last(); last != nil && !last.Deleted {
		return doc, last, nil
	}
	return doc, nil, nil
}

// deleting makes the append that deletes a document, if it has not changed. Its revisions can still be read.
func deleting(doc *projector.Document, reason string) (log.Part, error) {
	e, err := events.New(decided, doc.Subject, &events.DocumentDeleted{Reason: reason})
	e.ID = events.DerivedID("tavern/janitor", doc.Subject.String(), doc.Head.String(), reason)
	return log.Part{Subject: doc.Subject, Expect: log.At(doc.Head), Events: []events.Event{e}}, err
}

// goneSince returns the log's time since when an owner is gone: an agent, by its id or session, or a flow, by its
// session. It returns the zero time if the owner is not gone or unknown.
func (d *decider) goneSince(ctx context.Context, owner string) (time.Time, error) {
	if id, ok := strings.CutPrefix(owner, flowSession("")); ok {
		s, err := FlowOf(d.st, id).now(ctx)
		if errors.Is(err, tally.ErrNotFound) || isInvalid(err) {
			return time.Time{}, nil
		}
		if err != nil {
			return time.Time{}, fmt.Errorf("read its owner: %w", err)
		}
		return s.EndedAt, nil
	}
	return d.agentGone(ctx, strings.TrimPrefix(owner, agentSessions))
}

func (d *decider) agentGone(ctx context.Context, id string) (time.Time, error) {
	i, err := AgentOf(d.st, id).load(ctx)
	if _, other := errors.AsType[*tally.KindError](err); other || isInvalid(err) {
		return time.Time{}, nil
	}
	switch {
	case err != nil:
		return time.Time{}, fmt.Errorf("read its owner: %w", err)
	case i.session == 0 || !i.Dead():
		return time.Time{}, nil
	case i.FinishedAt.IsZero():
		return i.ArchivedAt, nil
	}
	return i.FinishedAt, nil
}

func isInvalid(err error) bool {
	_, invalid := errors.AsType[*events.InvalidError](err)
	return invalid
}
