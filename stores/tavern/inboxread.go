package tavern

import (
	"context"
	"errors"
	"iter"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
)

// Follow yields the messages behind an offset, 0 for all, and then those that come, each
// once and in the order in which they came, until ctx is done. It outlives lost
// connections. A message that cannot be read is *events.DamageError in its place; other
// errors are the last thing yielded, as of [tally.Session.Follow]. An inbox that is not
// there yet is waited for.
func (in *Inbox) Follow(ctx context.Context, after events.Offset) iter.Seq2[Message, error] {
	return in.messages(ctx, in.st.Log.Follow(ctx, in.behind(ctx, after)))
}

// behind returns the range of the inbox's records behind an offset. If the inbox has snapshots, it
// says how many are before: then a read notices a lost one.
func (in *Inbox) behind(ctx context.Context, after events.Offset) events.Range {
	r := events.Range{Subject: in.subject(), After: after}
	if after == 0 || in.st.Snapshots() == nil {
		return r
	}
	if o, err := in.st.Loader().Outline(ctx, r.Subject, 0); projector.Tolerate(err) == nil {
		r.Seen, _ = o.Count(ctx, after) // 0: not known
	}
	return r
}

// messages yields the messages of records. A body that is kept as a blob is read.
func (in *Inbox) messages(ctx context.Context, records iter.Seq2[events.Record, error]) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		for rec, err := range records {
			if err == nil && rec.Type != events.TypeTurnAppended {
				continue
			}
			var list []Message
			if err == nil {
				list, err = in.brought(ctx, rec)
			}
			if err != nil {
				_, damaged := errors.AsType[*events.DamageError](err)
				if !yield(Message{}, err) || !damaged {
					return
				}
			}
			for _, m := range list {
				if !yield(m, nil) {
					return
				}
			}
		}
	}
}

// brought returns the messages that one record brought.
func (in *Inbox) brought(ctx context.Context, rec events.Record) ([]Message, error) {
	rec, err := projector.Resolve(ctx, in.st.Log, rec, in.st.MaxValue())
	if err != nil {
		return nil, err
	}
	f := projector.Decode(rec)
	letters := projector.LettersOf(f)
	list := make([]Message, len(letters))
	for i, l := range letters {
		list[i] = messageOf(l, f.Payload.(*events.TurnAppended).Entries[l.Index])
	}
	return list, nil
}

// Page says which messages List returns. The zero value is the first hundred.
type Page struct {
	After  events.Offset // the messages behind it; with Newest those before it, 0: from the end
	Limit  int           // records at most; default 100. They are fewer if their bodies are large
	Newest bool          // the newest ones, the last one first
}

// pageBytes bounds the bodies of a page: it ends with the message by which they are so many.
const pageBytes = 16 << 20

// List returns a page of messages, and what After of the next one is, 0 if there is none.
// What came meanwhile makes no page repeat a message or leave one out. Amended messages are
// in it with each of their texts. If records cannot be read, the page of the others comes with a
// *projector.HoleError.
func (in *Inbox) List(ctx context.Context, p Page) (list []Message, next events.Offset, err error) {
	if p.Limit <= 0 {
		p.Limit = 100
	}
	size := 0
	var lost []events.Offset
	for ms, err := range in.pages(ctx, p) {
		if damage, is := errors.AsType[*events.DamageError](err); is {
			lost = append(lost, damage.Offset)
			continue
		}
		if err != nil {
			return nil, 0, err
		}
		if p.Limit == 0 || size >= pageBytes {
			return list, next, projector.HoleOf(in.subject(), lost) // there is one more
		}
		p.Limit--
		list, next = append(list, ms...), ms[0].Offset
		for _, m := range ms {
			size += len(m.Body) + len(m.Bytes)
		}
	}
	return list, 0, projector.HoleOf(in.subject(), lost)
}

// pages yields the messages of a list record by record, and an *events.DamageError in the place of
// a record that cannot be read.
func (in *Inbox) pages(ctx context.Context, p Page) iter.Seq2[[]Message, error] {
	return func(yield func([]Message, error) bool) {
		if p.Newest && p.After == 1 {
			return // nothing is before the first record
		}
		var records iter.Seq2[events.Record, error]
		if p.Newest {
			records = in.st.Log.ReadBack(ctx, events.Range{Subject: in.subject(), Upto: max(p.After, 1) - 1})
		} else {
			records = in.st.Log.Read(ctx, in.behind(ctx, p.After))
		}
		for rec, err := range records {
			var list []Message
			if err == nil && rec.Type == events.TypeTurnAppended {
				list, err = in.brought(ctx, rec)
			}
			if p.Newest {
				slices.Reverse(list)
			}
			if (err != nil || len(list) > 0) && !yield(list, err) {
				return
			}
		}
	}
}

// Unread counts the messages that were not seen. It reads them, one after the other.
func (in *Inbox) Unread(ctx context.Context) (n int, err error) {
	now, err := in.sure(ctx)
	if err != nil {
		return 0, err
	}
	for ms, err := range in.pages(ctx, Page{After: now.cursor()}) {
		if err != nil {
			return 0, err
		}
		n += len(ms)
	}
	return n, nil
}

// Message returns a message by its id, with its newest text. It reads the inbox from its
// end; whoever has the offset asks At. One that is not there is *MessageError.
func (in *Inbox) Message(ctx context.Context, id string) (Message, error) {
	_, now, err := in.find(ctx, id)
	return now, err
}

// find returns a message as it was sent, and with its newest text.
func (in *Inbox) find(ctx context.Context, id string) (first, now Message, err error) {
	return in.findBefore(ctx, id, 0)
}

// findBefore is find among the messages before an offset, 0 for all.
func (in *Inbox) findBefore(ctx context.Context, id string, before events.Offset) (first, now Message, err error) {
	var amended *Message
	for ms, err := range in.pages(ctx, Page{Newest: true, After: before}) {
		if err != nil {
			return first, now, err
		}
		for _, m := range ms {
			switch {
			case m.Amends == id && amended == nil:
				amended = &m
			case m.ID == id && m.Malformed == "" && m.Amends == "":
				first, now = m, m
				if amended != nil {
					now.Body, now.Bytes, now.Revision = amended.Body, amended.Bytes, amended.Offset
				}
				return first, now, nil
			}
		}
	}
	return first, now, &MessageError{Inbox: in.receiver, ID: id}
}

// At returns the message at an offset, as it was sent. If the inbox has none there, the error
// is *MessageError.
func (in *Inbox) At(ctx context.Context, at events.Offset) (Message, error) {
	rec, err := in.st.Log.Record(ctx, at)
	if errors.Is(err, events.ErrNotFound) || err == nil && rec.Subject != in.subject() {
		return Message{}, &MessageError{Inbox: in.receiver, ID: at.String()}
	}
	if err != nil {
		return Message{}, err
	}
	list, err := in.brought(ctx, rec)
	if err == nil && len(list) == 0 {
		err = &MessageError{Inbox: in.receiver, ID: at.String()}
	}
	if err != nil {
		return Message{}, err
	}
	return list[0], nil
}

// About returns the message that a notice or a malfunction of this inbox is about. It is in
// the log before that, of a notice just before.
func (in *Inbox) About(ctx context.Context, m Message) (Message, error) {
	if m.About == nil {
		return Message{}, &MessageError{Inbox: in.receiver, ID: m.ID}
	}
	_, found, err := in.of(m.About.Inbox).findBefore(ctx, m.About.ID, m.Offset)
	return found, err
}

// textAt returns a message of which the record at base is a text. Such a record says which
// message it is of, so nothing else is read unless it is a newer text.
func (in *Inbox) textAt(ctx context.Context, id string, base events.Offset) (Message, error) {
	text, err := in.At(ctx, base)
	switch {
	case id == "" || errors.Is(err, events.ErrNotFound) || err == nil && text.ID != id && text.Amends != id:
		return Message{}, &MessageError{Inbox: in.receiver, ID: id}
	case err != nil || text.Amends == "":
		return text, err
	}
	first, _, err := in.findBefore(ctx, id, base)
	return first, err
}
