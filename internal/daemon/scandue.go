package daemon

import (
	"context"
	"errors"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/projector"
)

// agent updates the entries of an agent's session.
func (s *space) agent(sub events.Subject, l *projector.Ledger) {
	status, ended, archived := l.Text("status"), timeOf(l, "finishedAt"), timeOf(l, "archivedAt")
	when := ended
	if when.IsZero() {
		when = archived
	}
	s.went(sub.ID, projector.IsGone(status) && !when.IsZero(), when)
	switch {
	case !timeOf(l, "purgedAt").IsZero():
	case status == "archived":
		s.add(projector.DueAgentArchived, sub, archived)
	case projector.IsGone(status):
		s.add(projector.DueAgentEnded, sub, ended)
	case status == "working" || status == "waiting" || status == "verifying":
		var lease events.Lease
		if raw, ok := l.Fields.Get("lease"); ok && rawjson.Unmarshal(raw, &lease) == nil && lease.Holder != "" {
			until, _ := lease.Until.Time()
			s.add(projector.DueAgentLease, sub, until)
		}
	}
}

func timeOf(l *projector.Ledger, field string) time.Time {
	at, _ := events.Timestamp(l.Text(field)).Time()
	return at
}

// flow updates the entries of a flow's session. A flow that ended without completing makes its parent flow due.
func (s *space) flow(ctx context.Context, sub events.Subject, l *projector.Ledger) error {
	for _, r := range l.Runs {
		result := r.Last()
		if result == nil {
			if r.LeaseUntil > 0 {
				s.add(projector.DueFlow, sub, time.UnixMilli(r.LeaseUntil))
			}
			if r.Owner != "" {
				s.owners[sub] = r.Owner
			}
			continue
		}
		rec, err := s.src.Record(ctx, result.Offset)
		if events.IsDamage(err) {
			continue
		}
		if err != nil {
			return err
		}
		s.went(sub.ID, true, rec.Recorded)
		if r.Parent != nil && result.Outcome != "completed" && events.KindOf(r.Parent.Session) == events.KindFlow {
			s.due[sub] = append(s.due[sub], Due{What: projector.DueFlow, Subject: events.Session(s.namespace, r.Parent.Session), At: rec.Recorded})
		}
	}
	return nil
}

// document updates the entries of a document: its expiry and its owner.
func (s *space) document(ctx context.Context, sub events.Subject) error {
	if sub.Kind == events.KindBlob || sub.Kind == events.KindUnit {
		return nil
	}
	doc, err := s.loader.History(ctx, sub)
	if _, damaged := errors.AsType[*events.DamageError](err); damaged || errors.Is(err, events.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	last := doc.Last()
	if last == nil || last.Deleted {
		return nil
	}
	until, _ := last.Meta.ExpiresAt.Time()
	s.add(projector.DueDocument, sub, until)
	if last.Meta.Owner != "" && sub.Kind != events.KindAgent { // an agent's file ends with its session
		s.owners[sub] = last.Meta.Owner
	}
	return nil
}

// orphans lists the subjects whose owner is gone.
func (s *space) orphans(what string) (list []Due) {
	for sub, owner := range s.owners {
		if (sub.Kind == kindOverlay) != (what == projector.DueOverlay) {
			continue
		}
		if at, ok := s.goneSince(owner); ok {
			list = append(list, Due{What: what, Subject: sub, At: at})
		}
	}
	if what == projector.DueOrphan {
		list = append(list, s.orphanChangesets()...)
	}
	return list
}

// kindChangeset is the kind of the runs of items that are changesets.
const kindChangeset = "changeset"

// orphanChangesets lists the unfinished changesets whose owner is gone.
func (s *space) orphanChangesets() (list []Due) {
	for id, q := range s.queues {
		for _, i := range q.Items {
			if i.Run.Kind != kindChangeset || i.Ended != 0 || i.Owner == "" {
				continue
			}
			if at, ok := s.goneSince(i.Owner); ok {
				list = append(list, Due{What: projector.DueOrphan, Subject: events.Session(s.namespace, projector.ItemSession(id, i.ID)), At: at})
			}
		}
	}
	return list
}

// kindOverlay is the kind of documents that replace others for one agent.
const kindOverlay = "overlay"

// goneSince returns when an owner ended. The owner is an agent's id or a session.
func (s *space) goneSince(owner string) (time.Time, bool) {
	at, ok := s.gone[owner]
	if !ok {
		at, ok = s.gone[events.KindAgent+"/"+owner]
	}
	return at, ok
}

// overdue lists the unanswered questions with their deadlines.
func (s *space) overdue() (list []Due) {
	for _, l := range s.mail.Open() {
		deadline, ok := l.Deadline.Time()
		if ok && !s.answered[question{l.From, l.Receiver, l.ID}] { // the answer may have been read before the question
			list = append(list, Due{What: projector.DueOverdue, Subject: projector.InboxSubject(s.namespace, l.From), At: deadline, About: l.Offset})
		}
	}
	return list
}

// goneMail lists the inboxes of receivers that are gone, with mail that they neither read nor answered.
func (s *space) goneMail() (list []Due) {
	for receiver, in := range s.mail.Inboxes {
		sub := projector.InboxSubject(s.namespace, receiver)
		at, ok := s.gone[events.KindAgent+"/"+receiver]
		if !ok {
			at, ok = s.gone[sub.ID]
		}
		if ok && s.isLeft(receiver, in) {
			list = append(list, Due{What: projector.DueGone, Subject: sub, At: at})
		}
	}
	return list
}

func (s *space) isLeft(receiver string, in *projector.Inbox) bool {
	for _, l := range in.Unread() {
		if l.From != "" && l.ID != "" && l.Amends == "" && l.About == nil && !s.answered[question{l.From, receiver, l.ID}] {
			return true
		}
	}
	return false
}

// refused lists the inboxes whose next message was refused.
func (s *space) refused() (list []Due) {
	for receiver, in := range s.mail.Inboxes {
		h := in.Fields.HandOver
		if h == nil || h.At <= in.Cursor() {
			continue
		}
		if last, ok := h.Last.Time(); ok {
			list = append(list, Due{What: projector.DueHandover, Subject: projector.InboxSubject(s.namespace, receiver), At: last, About: h.At})
		}
	}
	return list
}

// items lists when items of queues need decisions.
func (s *space) items() (list []Due) {
	for id, q := range s.queues {
		sub := events.Session(s.namespace, projector.QueueSession(id))
		for _, i := range q.Items {
			if at := i.Decides(q.Queue.Settings); !at.IsZero() {
				list = append(list, Due{What: projector.DueQueue, Subject: sub, At: at})
			}
		}
	}
	return list
}
