package tavern

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/tend"
)

// overdue decides on the open questions of the owner of an inbox.
func (d *daemon) overdue(ctx context.Context, due tend.Due, now time.Time) ([]Decision, error) {
	asker, ok := projector.ReceiverOf(due.Subject)
	if !ok {
		return nil, nil
	}
	return d.tell(ctx, d.questions(ctx, asker, due.About), func(l projector.Letter, asOf events.Offset) (Decision, error) {
		if l.From != asker {
			return Decision{}, nil
		}
		return Overdue(d.st.Namespace(), l, asOf, now)
	})
}

// questions yields the messages of the record in which a question is, or of all inboxes if
// that is not known.
func (d *daemon) questions(ctx context.Context, asker string, at events.Offset) iter.Seq2[projector.Letter, error] {
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

// left decides on what lies in the inbox of somebody who is gone.
func (d *daemon) left(ctx context.Context, due tend.Due, _ time.Time) ([]Decision, error) {
	receiver, ok := projector.ReceiverOf(due.Subject)
	if !ok {
		return nil, nil
	}
	in := InboxOf(d.st, receiver)
	c, err := in.correspondent(ctx, receiver, true)
	if err != nil || !projector.IsGone(c.status) {
		return nil, err
	}
	cursor, err := in.Cursor(ctx)
	if err != nil {
		return nil, err
	}
	unread := d.letters(ctx, events.Range{Subject: due.Subject, After: cursor})
	return d.tell(ctx, unread, func(l projector.Letter, asOf events.Offset) (Decision, error) {
		return Gone(d.st.Namespace(), l, c.status, asOf)
	})
}

// refused decides on the message that the receiver of an inbox would not take.
func (d *daemon) refused(ctx context.Context, due tend.Due, now time.Time) ([]Decision, error) {
	receiver, ok := projector.ReceiverOf(due.Subject)
	if !ok {
		return nil, nil
	}
	h, err := InboxOf(d.st, receiver).HandOver(ctx)
	if err != nil || h.At == 0 {
		return nil, err
	}
	return d.tell(ctx, d.lettersAt(ctx, h.At), func(l projector.Letter, asOf events.Offset) (Decision, error) {
		dec, err := HandOverDue(d.st.Namespace(), l, h, asOf, now)
		dec.Next = time.Time{} // whoever hands it over looks by itself
		return dec, err
	})
}

// tell decides on messages of which nothing has come to their senders yet, by what is in the
// log up to where their inboxes are read.
func (d *daemon) tell(ctx context.Context, letters iter.Seq2[projector.Letter, error], decide func(projector.Letter, events.Offset) (Decision, error)) (list []Decision, err error) {
	for l, err := range letters {
		if err != nil {
			return nil, err
		}
		asOf, err := d.st.Log.Durable(ctx)
		if err != nil {
			return nil, err
		}
		dec, err := decide(l, asOf)
		if err != nil {
			return nil, err
		}
		if len(dec.Parts) > 0 {
			told, err := d.isTold(ctx, l, dec, asOf)
			if err != nil {
				return nil, err
			}
			if told {
				dec.Parts = nil
			}
		}
		list = append(list, dec)
	}
	return list, nil
}

// isTold reports whether the sender of a message has its answer, or was told what is decided.
func (d *daemon) isTold(ctx context.Context, l projector.Letter, dec Decision, asOf events.Offset) (bool, error) {
	for other, err := range d.letters(ctx, events.Range{Subject: dec.Parts[0].Subject, After: l.Offset, Upto: asOf}) {
		if err != nil {
			return false, err
		}
		if from, id := other.Answers(); id == l.ID && from == l.Receiver {
			return true, nil
		}
	}
	return false, nil
}

// letters yields the messages of a range. What cannot be read is left out.
func (d *daemon) letters(ctx context.Context, r events.Range) iter.Seq2[projector.Letter, error] {
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
func (d *daemon) lettersAt(ctx context.Context, at events.Offset) iter.Seq2[projector.Letter, error] {
	return d.letters(ctx, events.Range{Namespace: d.st.Namespace(), After: at - 1, Upto: at})
}

func (d *daemon) lettersIn(ctx context.Context, rec events.Record) ([]projector.Letter, error) {
	rec, err := projector.Resolve(ctx, d.st.Log, rec, d.st.MaxValue())
	if err != nil {
		return nil, err
	}
	return projector.LettersOf(projector.Decode(rec)), nil
}
