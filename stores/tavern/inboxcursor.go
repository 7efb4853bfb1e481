package tavern

import (
	"context"
	"errors"
	"fmt"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// inboxNow is what an inbox says of how far its receiver is, as of its last record.
type inboxNow struct {
	last   events.Offset // of the inbox's records; 0: it has none
	fields projector.InboxFields
	lost   events.Offset // of the newest record behind what the fields rest on that cannot be read; 0: none
}

func (n inboxNow) cursor() events.Offset {
	return (&projector.Inbox{Fields: n.fields}).Cursor()
}

func (n inboxNow) status() string {
	return (&projector.Inbox{Fields: n.fields}).Status()
}

func (n inboxNow) handOver() projector.HandOver {
	if n.fields.HandOver == nil || n.fields.HandOver.At <= n.cursor() {
		return projector.HandOver{}
	}
	return *n.fields.HandOver
}

// mostBack is how many records of an inbox are read for how far its receiver is. Behind them
// its outline is opened, if there are snapshots of it: without them it is made of all records, and
// takes memory for each.
const maxBack = 200

// now reads how far the receiver is: from the end of the inbox back to where all is said, or
// to where the handle knows it. So a receiver that keeps up costs what it has not seen, and
// one that does not costs its senders no more than an outline; no message is kept in memory.
func (in *Inbox) now(ctx context.Context) (inboxNow, error) {
	in.mu.Lock()
	known := in.known
	in.mu.Unlock()
	now, back := inboxNow{last: known.last}, 0
	for rec, err := range in.st.Log.ReadBack(ctx, events.Range{Subject: in.subject(), After: known.last}) {
		if damage, ok := errors.AsType[*events.DamageError](err); ok {
			now.last, now.lost = max(now.last, damage.Offset), max(now.lost, damage.Offset)
			continue
		}
		if err != nil {
			return now, err
		}
		now.last = max(now.last, rec.Offset)
		if back++; back == maxBack && in.st.Snapshots() != nil {
			if outlined, err := in.outlined(ctx); err == nil {
				outlined.lost = now.lost
				now = outlined
				break
			} // it has a record that cannot be read: those before it say what they can
		}
		if rec.Type != events.TypeSessionUpdated {
			continue
		}
		if rec, err = projector.Resolve(ctx, in.st.Log, rec, in.st.MaxValue()); err != nil {
			return now, err
		}
		now.fields = now.fields.Or(projector.InboxFieldsOf(projector.Decode(rec)))
		if now.fields.IsWhole() {
			break
		}
	}
	now.fields, now.lost = now.fields.Or(known.fields), max(now.lost, known.lost)
	in.remember(now)
	return now, nil
}

// sure is now for an answer or a decision: how far the receiver is may stand in a record that
// cannot be read.
func (in *Inbox) sure(ctx context.Context) (inboxNow, error) {
	now, err := in.now(ctx)
	if err == nil && now.lost > 0 {
		err = projector.HoleOf(in.subject(), []events.Offset{now.lost})
	}
	return now, err
}

// outlined is how far the receiver is by the outline of the inbox.
func (in *Inbox) outlined(ctx context.Context) (inboxNow, error) {
	o, err := in.st.Loader().Outline(ctx, in.subject(), 0)
	if err != nil {
		return inboxNow{}, err
	}
	said := projector.Fact{Payload: &events.SessionUpdated{Set: o.Ledger().Fields}}
	return inboxNow{last: o.Offset(), fields: projector.InboxFieldsOf(said)}, nil
}

// remember keeps what was read, to read less the next time.
func (in *Inbox) remember(now inboxNow) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if now.last >= in.known.last {
		in.known = now
	}
}

// Cursor returns the offset up to which messages were seen, 0 if none was: what Follow takes.
func (in *Inbox) Cursor(ctx context.Context) (events.Offset, error) {
	now, err := in.sure(ctx)
	return now.cursor(), err
}

// Seen notes that all messages up to an offset were seen. The cursor only goes forward:
// what was seen already changes nothing. An offset that the inbox has not got to is a
// *SeenError.
func (in *Inbox) Seen(ctx context.Context, at events.Offset) error {
	return in.decide(ctx, func(now inboxNow) error {
		if at <= now.cursor() {
			return nil
		}
		return in.move(ctx, now, at)
	})
}

// move moves the cursor, if the inbox's fields are still as they were at an offset.
func (in *Inbox) move(ctx context.Context, now inboxNow, to events.Offset) error {
	part, err := in.seenPart(now, to)
	if err != nil {
		return err
	}
	_, err = in.st.Append(ctx, part.Subject, part.Expect, part.Events...)
	return err
}

// SeenPart returns what Seen would append, for a receiver that commits it together with what
// it made of the messages (tally.Store.AppendAll): then both are there once, or neither,
// whatever is killed when. If another process saw messages meanwhile, the append fails with
// an error that matches log.ErrConflict; if it had before, SeenPart does, with a *SeenError:
// begin again at the cursor. Such a receiver takes one message after the other.
func (in *Inbox) SeenPart(ctx context.Context, at events.Offset) (log.Part, error) {
	now, err := in.sure(ctx)
	if err != nil {
		return log.Part{}, err
	}
	return in.seenPart(now, at)
}

func (in *Inbox) seenPart(now inboxNow, at events.Offset) (log.Part, error) {
	if at > now.last || at <= now.cursor() {
		return log.Part{}, &SeenError{Inbox: in.receiver, Offset: at, Cursor: now.cursor(), Last: now.last}
	}
	return in.update(now, events.SessionUpdated{Set: events.Fields{{Name: "cursors", Value: cursorsAt(at)}}})
}

// Refused notes that the message at an offset was handed to its receiver, who would not take
// it: so whoever hands it over next knows when to (HandOverDue), in this process or another.
// What was seen meanwhile is not noted.
func (in *Inbox) Refused(ctx context.Context, at events.Offset, reason string) (projector.HandOver, error) {
	var h projector.HandOver
	err := in.decide(ctx, func(now inboxNow) error {
		if at > now.last || at <= now.cursor() {
			return &SeenError{Inbox: in.receiver, Offset: at, Cursor: now.cursor(), Last: now.last}
		}
		when, err := in.st.LeaseTime(ctx)
		if err != nil {
			return err
		}
		if h = now.handOver(); h.At != at {
			h = projector.HandOver{At: at}
		}
		h.Refusals, h.Last, h.Reason = h.Refusals+1, events.TimestampOf(when), reason
		value, err := rawjson.Marshal(h)
		if err != nil {
			return &events.InvalidError{Field: "reason", Reason: err.Error()}
		}
		part, err := in.update(now, events.SessionUpdated{Set: events.Fields{{Name: "handover", Value: value}}})
		if err == nil {
			_, err = in.st.Append(ctx, part.Subject, part.Expect, part.Events...)
		}
		return err
	})
	return h, err
}

// HandOver returns what came of the attempts to hand over the message that is next; the zero
// value if none was refused.
func (in *Inbox) HandOver(ctx context.Context) (projector.HandOver, error) {
	now, err := in.sure(ctx)
	return now.handOver(), err
}

// update returns the append of a change of the inbox's fields that rests on what they are.
// It says all of them again, so that readers find them near the end.
func (in *Inbox) update(now inboxNow, p events.SessionUpdated) (log.Part, error) {
	said := projector.InboxFieldsOf(projector.Fact{Payload: &p})
	next := inboxNow{fields: said.Or(now.fields)}
	if said.Cursor == nil {
		p.Set = append(p.Set, events.Field{Name: "cursors", Value: cursorsAt(next.cursor())})
	}
	if said.Status == nil {
		value := events.Raw("null")
		if s := next.status(); s != "" {
			value = rawjson.AppendString(nil, s)
		}
		p.Set = append(p.Set, events.Field{Name: "status", Value: value})
	}
	if said.HandOver == nil {
		value := events.Raw("null")
		if h := next.handOver(); h.At > 0 {
			value, _ = rawjson.Marshal(h) // which was read as JSON
		}
		p.Set = append(p.Set, events.Field{Name: "handover", Value: value})
	}
	sub := in.subject()
	e, err := events.New(in.st.Source(), sub, &p)
	return log.Part{Subject: sub, Expect: log.Since(now.last, events.TypeSessionUpdated), Events: []events.Event{in.st.Stamp(e)}}, err
}

// cursorsAt is the value of the field cursors.
func cursorsAt(at events.Offset) events.Raw {
	return events.Raw(fmt.Sprintf(`{%q:%d}`, projector.InboxThread, uint64(at)))
}
