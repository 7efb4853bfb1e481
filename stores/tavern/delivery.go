package tavern

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/daemon"
	"github.com/tallylog/tally/projector"
)

// overdue decides on the open questions that an inbox's owner has asked.
func (d *decider) overdue(ctx context.Context, due daemon.Due, now time.Time) iter.Seq2[Decision, error] {
	asker, ok := projector.ReceiverOf(due.Subject)
	if !ok {
		return nothing
	}
	return d.tell(ctx, d.questions(ctx, asker, due.About), func(l projector.Letter, asOf events.Offset) (Decision, error) {
		if l.From != asker {
			return Decision{}, nil
		}
		return Overdue(d.st.Namespace(), l, asOf, now)
	})
}

// nothing yields no decision.
func nothing(func(Decision, error) bool) {}

// questions yields the messages of the record at an offset, or of all inboxes if the offset is 0.
func (d *decider) questions(ctx context.Context, asker string, at events.Offset) iter.Seq2[projector.Letter, error] {
	if at != 0 {
		return d.lettersAt(ctx, at)
	}
	return func(yield func(projector.Letter, error) bool) {
		for info, err := range d.st.Subjects(ctx, events.KindSession) {
			if err != nil {
				yield(projector.Letter{}, err)
				return
			}
			if _, is := projector.ReceiverOf(info.Subject); !is {
				continue
			}
			for l, err := range d.letters(ctx, events.Range{Subject: info.Subject}) {
				if (err != nil || l.From == asker && l.Awaits()) && !yield(l, err) {
					return
				}
			}
		}
	}
}

// left decides on the messages in the inbox of a receiver that is gone.
func (d *decider) left(ctx context.Context, due daemon.Due, _ time.Time) iter.Seq2[Decision, error] {
	receiver, ok := projector.ReceiverOf(due.Subject)
	if !ok {
		return nothing
	}
	in := InboxOf(d.st, receiver)
	c, err := in.correspondent(ctx, receiver, true)
	if err == nil && !projector.IsGone(c.status) {
		return nothing
	}
	var cursor events.Offset
	if err == nil {
		cursor, err = in.Cursor(ctx)
	}
	if err != nil {
		return failed(err)
	}
	unread := d.letters(ctx, events.Range{Subject: due.Subject, After: cursor})
	return d.tell(ctx, unread, func(l projector.Letter, asOf events.Offset) (Decision, error) {
		return Gone(d.st.Namespace(), l, c.status, asOf)
	})
}

func failed(err error) iter.Seq2[Decision, error] {
	return func(yield func(Decision, error) bool) { yield(Decision{}, err) }
}

// refused decides on the message that an inbox's receiver has refused.
func (d *decider) refused(ctx context.Context, due daemon.Due, now time.Time) iter.Seq2[Decision, error] {
	receiver, ok := projector.ReceiverOf(due.Subject)
	if !ok {
		return nothing
	}
	h, err := InboxOf(d.st, receiver).HandOver(ctx)
	if err != nil {
		return failed(err)
	}
	if h.At == 0 {
		return nothing
	}
	return d.tell(ctx, d.lettersAt(ctx, h.At), func(l projector.Letter, asOf events.Offset) (Decision, error) {
		dec, err := HandOverDue(d.st.Namespace(), l, h, asOf, now)
		dec.Next = time.Time{} // the caller that hands it over checks the time itself
		return dec, err
	})
}

// tell decides on messages whose senders have not been told anything yet, by the log up to the offset where their
// inboxes are read. It yields each decision before it makes the next one, because both may concern one sender's inbox.
func (d *decider) tell(ctx context.Context, letters iter.Seq2[projector.Letter, error], decide func(projector.Letter, events.Offset) (Decision, error)) iter.Seq2[Decision, error] {
	return func(yield func(Decision, error) bool) {
		answers := make(map[events.Subject]*answered)
		for l, err := range letters {
			var dec Decision
			if err == nil {
				dec, err = d.untold(ctx, answers, l, decide)
			}
			if !yield(dec, err) || err != nil {
				return
			}
		}
	}
}

// untold decides on one message. Nothing is due if its sender has an answer or was told.
func (d *decider) untold(ctx context.Context, answers map[events.Subject]*answered, l projector.Letter, decide func(projector.Letter, events.Offset) (Decision, error)) (Decision, error) {
	asOf, err := d.st.Log.Durable(ctx)
	if err != nil {
		return Decision{}, err
	}
	dec, err := decide(l, asOf)
	if err != nil || len(dec.Parts) == 0 {
		return dec, err
	}
	sender := dec.Parts[0].Subject
	known := answers[sender]
	if known == nil || l.Offset < known.after {
		known = &answered{after: l.Offset, upto: l.Offset, by: make(map[[2]string]events.Offset)}
		answers[sender] = known
	}
	for other, err := range d.letters(ctx, events.Range{Subject: sender, After: known.upto, Upto: asOf}) {
		if err != nil {
			return Decision{}, err
		}
		if from, id := other.Answers(); id != "" {
			known.by[[2]string{from, id}] = other.Offset
		}
	}
	known.upto = max(known.upto, asOf)
	if known.by[[2]string{l.Receiver, l.ID}] > l.Offset {
		dec.Parts = nil
	}
	return dec, nil
}

// answered holds the answers in an inbox to its owner's messages.
type answered struct {
	after, upto events.Offset               // range that was read
	by          map[[2]string]events.Offset // replier and message -> the newest record with that answer
}

// letters yields the messages of a range. It skips records that cannot be read.
func (d *decider) letters(ctx context.Context, r events.Range) iter.Seq2[projector.Letter, error] {
	return func(yield func(projector.Letter, error) bool) {
		for rec, err := range d.st.Log.Read(ctx, r) {
			var list []projector.Letter
			if err == nil && rec.Type == events.TypeTurnAppended {
				list, err = d.lettersIn(ctx, rec)
			}
			if _, damaged := errors.AsType[*events.DamageError](err); damaged {
				continue
			}
			if err != nil {
				yield(projector.Letter{}, err)
				return
			}
			for _, l := range list {
				if !yield(l, nil) {
					return
				}
			}
		}
	}
}

// lettersAt yields the messages of one record.
func (d *decider) lettersAt(ctx context.Context, at events.Offset) iter.Seq2[projector.Letter, error] {
	return d.letters(ctx, events.Range{Namespace: d.st.Namespace(), After: at - 1, Upto: at})
}

func (d *decider) lettersIn(ctx context.Context, rec events.Record) ([]projector.Letter, error) {
	rec, err := projector.Resolve(ctx, d.st.Log, rec, d.st.MaxValue())
	if err != nil {
		return nil, err
	}
	return projector.LettersOf(projector.Decode(rec)), nil
}
