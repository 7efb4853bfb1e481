package catalog

import (
	"context"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
)

// user is the receiver that is a person. It is never gone.
const user = "user"

// mail is the content of a record of an inbox.
type mail struct {
	ns, receiver string
	offset       events.Offset
	recorded     time.Time
	letters      []projector.Letter
	said         projector.InboxFields
}

func mailIn(receiver string, f projector.Fact) mail {
	return mail{f.Subject.Namespace, receiver, f.Offset, f.Recorded, projector.LettersOf(f), projector.InboxFieldsOf(f)}
}

// inbox is a row of an inbox.
type inbox struct {
	ns, id   string
	seen     events.Offset
	status   string
	gone     int64 // when its status became one of a gone receiver; 0: it is not gone
	messages int64
	refused  events.Offset // the refused message
	refusals int64
	reason   string
	retry    int64 // time of the next attempt; 0: unknown
	head     events.Offset
}

const inboxColumns = "namespace, id, seen, status, gone, messages, refused_offset, refusals, reason, retry, head_offset"

func (i *inbox) columns() []any {
	return []any{&i.ns, &i.id, offset(&i.seen), &i.status, &i.gone, &i.messages, offset(&i.refused), &i.refusals, &i.reason, &i.retry, offset(&i.head)}
}

// foldInbox folds a record of an inbox.
func (w *Work) foldInbox(ctx context.Context, m mail) error {
	in := inbox{ns: m.ns, id: m.receiver}
	if _, err := w.find(ctx, "SELECT "+inboxColumns+" FROM inboxes{set} WHERE namespace=? AND id=?", []any{m.ns, m.receiver}, in.columns()); err != nil {
		return err
	}
	in.head = m.offset
	for _, l := range m.letters {
		in.messages++
		if err := w.addLetter(ctx, m.ns, l); err != nil {
			return err
		}
	}
	if m.said.Cursor != nil {
		in.seen = *m.said.Cursor
	}
	if s := m.said.Status; s != nil {
		in.status, in.gone = *s, since(in.gone, *s, m.recorded)
	}
	if err := w.refuse(ctx, &in, m.said); err != nil {
		return err
	}
	if err := w.put(ctx, "inboxes", valuesOf(in.columns())...); err != nil {
		return err
	}
	return w.mourn(ctx, m.ns, m.receiver)
}

// since returns when a receiver with a status left, or 0 if the status is not gone. If the receiver was gone before,
// the earlier time stays.
func since(before int64, status string, now time.Time) int64 {
	switch {
	case !projector.IsGone(status):
		return 0
	case before != 0:
		return before
	}
	return millis(now)
}

// refuse stores the hand-over state of a record. While the message is unread, the next attempt is due.
func (w *Work) refuse(ctx context.Context, in *inbox, said projector.InboxFields) error {
	if said.HandOver == nil && said.Cursor == nil {
		return nil
	}
	sub := projector.InboxSubject(in.ns, in.id)
	if h := said.HandOver; h != nil {
		if err := w.due(ctx, dueKey{what: projector.DueHandover, subject: sub, about: in.refused}, 0, false); err != nil {
			return err
		}
		in.refused, in.refusals, in.reason, in.retry = h.At, int64(h.Refusals), h.Reason, 0
		if at, ok := h.Retry(); ok {
			in.retry = millis(at)
		}
	}
	return w.due(ctx, dueKey{what: projector.DueHandover, subject: sub, about: in.refused}, in.retry, in.retry != 0 && in.refused > in.seen)
}

// addLetter adds a message, with its question or answer.
func (w *Work) addLetter(ctx context.Context, ns string, l projector.Letter) error {
	if err := w.put(ctx, "messages", ns, l.Receiver, int64(l.Offset), l.Index, l.ID, l.From, l.Type, l.Thread, l.Bytes, millis(l.Recorded),
		l.Expects, l.Deadline, 0, isOwed(ns, l)); err != nil {
		return err
	}
	if from, id := l.Answers(); id != "" {
		if err := w.answer(ctx, ns, l, from, id); err != nil {
			return err
		}
	}
	if !l.Awaits() || l.From == "" || l.ID == "" {
		return nil
	}
	if err := w.settle(ctx, ns, l.From, l.Receiver, l.ID); err != nil { // the same id is asked again
		return err
	}
	if err := w.put(ctx, "questions", ns, l.From, l.Receiver, l.ID, int64(l.Offset), l.Index); err != nil {
		return err
	}
	deadline, ok := l.Deadline.Time()
	asker := projector.InboxSubject(ns, l.From)
	return w.due(ctx, dueKey{projector.DueOverdue, asker, l.Offset, l.Index}, millis(deadline), ok && asker.Validate() == nil)
}

// isOwed reports whether the sender is notified if the receiver leaves without reading the message. Senders of notices
// and malfunctions are not notified.
func isOwed(ns string, l projector.Letter) bool {
	return l.From != "" && l.ID != "" && l.Amends == "" && l.About == nil && projector.InboxSubject(ns, l.From).Validate() == nil
}

// answer notes that a message answers another one.
func (w *Work) answer(ctx context.Context, ns string, l projector.Letter, from, id string) error {
	if err := w.settle(ctx, ns, l.Receiver, from, id); err != nil {
		return err
	}
	if err := w.run(ctx, "UPDATE messages{set} SET answered=? WHERE namespace=? AND inbox=? AND sender=? AND id=? AND answered=0",
		int64(l.Offset), ns, from, l.Receiver, id); err != nil {
		return err
	}
	return w.mourn(ctx, ns, from)
}

// settle removes an open question.
func (w *Work) settle(ctx context.Context, ns, asker, asked, id string) error {
	d := dueKey{what: projector.DueOverdue, subject: projector.InboxSubject(ns, asker)}
	found, err := w.find(ctx, "SELECT offset, number FROM questions{set} WHERE namespace=? AND asker=? AND asked=? AND id=?", []any{ns, asker, asked, id},
		[]any{offset(&d.about), &d.number})
	if err != nil || !found {
		return err
	}
	if err := w.due(ctx, d, 0, false); err != nil {
		return err
	}
	return w.run(ctx, "DELETE FROM questions{set} WHERE namespace=? AND asker=? AND asked=? AND id=?", ns, asker, asked, id)
}

// mourn updates whether senders must be notified that a receiver left: if it has messages that are neither read nor
// answered.
func (w *Work) mourn(ctx context.Context, ns, receiver string) error {
	at, err := w.goneSince(ctx, ns, receiver)
	if err != nil {
		return err
	}
	owed := false
	if at != 0 {
		var one int
		owed, err = w.find(ctx, `SELECT 1 FROM messages{set} WHERE namespace=?1 AND inbox=?2 AND offset>(SELECT seen FROM inboxes{set} WHERE namespace=?1 AND id=?2)
			AND owed=1 AND answered=0 LIMIT 1`, []any{ns, receiver}, []any{&one})
		if err != nil {
			return err
		}
	}
	return w.due(ctx, dueKey{what: projector.DueGone, subject: projector.InboxSubject(ns, receiver)}, at, owed)
}

// goneSince returns when a receiver left, or 0 if it is present. An agent's session takes precedence over its inbox.
func (w *Work) goneSince(ctx context.Context, ns, receiver string) (at int64, err error) {
	if receiver == user {
		return 0, nil
	}
	isAgent, err := w.find(ctx, "SELECT gone FROM agents{set} WHERE namespace=? AND id=? AND kind=?", []any{ns, receiver, events.KindAgent}, []any{&at})
	if err != nil || isAgent {
		return at, err
	}
	_, err = w.find(ctx, "SELECT gone FROM inboxes{set} WHERE namespace=? AND id=?", []any{ns, receiver}, []any{&at})
	return at, err
}
