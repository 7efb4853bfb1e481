package tavern

import (
	"context"
	"errors"
	"iter"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
)

// Follow yields the messages after an offset, 0 for all, and then new ones as they arrive, each once and in order,
// until ctx is done. It survives lost connections. For a message that cannot be read it yields *events.DamageError and
// goes on; any other error is the last one, as with [tally.Session.Follow]. If the inbox does not exist yet, Follow
// waits for it.
func (in *Inbox) Follow(ctx context.Context, after events.Offset) iter.Seq2[Message, error] {
	return in.messages(ctx, in.st.Log.Follow(ctx, in.behind(ctx, after)))
}

// behind returns the range of the inbox's records after an offset. If the inbox has snapshots, the range has the number
// of records before, so that the read notices a lost record.
func (in *Inbox) behind(ctx context.Context, after events.Offset) events.Range {
	r := events.Range{Subject: in.subject(), After: after}
	if after == 0 || in.st.Snapshots() == nil {
		return r
	}
	if o, err := in.st.Loader().Outline(ctx, r.Subject, 0); projector.Tolerate(err) == nil {
		r.Known, _ = o.Count(ctx, after) // 0: unknown
	}
	return r
}

// messages yields the messages in records. It reads bodies that are kept as blobs.
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

// brought returns the messages in one record.
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

// Page selects the messages that List returns. The zero value is the first hundred.
type Page struct {
	After  events.Offset // messages after this offset; with Newest those before it, 0: from the end
	Limit  int           // records at most; default 100; fewer if bodies are large
	Newest bool          // newest first
}

// pageBytes bounds the bodies of a page. The page ends with the message that exceeds it.
const pageBytes = 16 << 20

// List returns a page of messages, and the After of the next page, or 0. New messages make no page repeat or skip a
// message. Each text of an amended message is in the list. If records cannot be read, List returns the other messages
// with a *projector.HoleError.
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
			return list, next, projector.HoleOf(in.subject(), lost) // the next page is not empty
		}
		p.Limit--
		list, next = append(list, ms...), ms[0].Offset
		for _, m := range ms {
			size += len(m.Body) + len(m.Bytes)
		}
	}
	return list, 0, projector.HoleOf(in.subject(), lost)
}

// pages yields the messages of a list record by record. For a record that cannot be read it yields an
// *events.DamageError.
func (in *Inbox) pages(ctx context.Context, p Page) iter.Seq2[[]Message, error] {
	return func(yield func([]Message, error) bool) {
		if p.Newest && p.After == 1 {
			return // the log has nothing before the first record
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

// Unread counts the messages that were not seen. It reads all of them.
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

// Message returns a message by its id, with its newest text. It reads the inbox back from its end; At is faster if the
// offset is known. If the inbox does not have the message, the error is *MessageError.
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

// At returns the message at an offset, as it was sent. If the inbox has no message there, the error is *MessageError.
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

// About returns the message that a notice or a malfunction of this inbox is about. The log has it earlier; for a
// notice, just before.
func (in *Inbox) About(ctx context.Context, m Message) (Message, error) {
	if m.About == nil {
		return Message{}, &MessageError{Inbox: in.receiver, ID: m.ID}
	}
	_, found, err := in.of(m.About.Inbox).findBefore(ctx, m.About.ID, m.Offset)
	return found, err
}

// textAt returns the message whose text is the record at base. The record names its message, so only the text of an
// amended message needs another read.
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
