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

// inboxNow is the state of an inbox's fields as of its last record.
type inboxNow struct {
	last   events.Offset // last record of the inbox; 0: the inbox does not exist
	fields projector.InboxFields
	lost   events.Offset // newest unreadable record after the records that the fields come from, or 0
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

// maxBack is how many records of an inbox are read back for its fields. After that the inbox's outline is read, if the
// store has snapshots; without them an outline reads all records, and takes memory for each.
const maxBack = 200

// now reads the inbox's fields, from the end of the inbox back to a record with all fields, or to the state that the
// handle knows. So the cost is the number of unseen messages, or at most an outline. No message is kept in memory.
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
			} // a record cannot be read: use the records before it
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

// sure is now for answers and decisions: it returns an error if an unreadable record may have other fields.
func (in *Inbox) sure(ctx context.Context) (inboxNow, error) {
	now, err := in.now(ctx)
	if err == nil && now.lost > 0 {
		err = projector.HoleOf(in.subject(), []events.Offset{now.lost})
	}
	return now, err
}

// outlined returns the state of the inbox by its outline.
func (in *Inbox) outlined(ctx context.Context) (inboxNow, error) {
	o, err := in.st.Loader().Outline(ctx, in.subject(), 0)
	if err != nil {
		return inboxNow{}, err
	}
	said := projector.Fact{Payload: &events.SessionUpdated{Set: o.Ledger().Fields}}
	return inboxNow{last: o.Offset(), fields: projector.InboxFieldsOf(said)}, nil
}

// remember keeps the state, so that the next call reads less.
func (in *Inbox) remember(now inboxNow) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if now.last >= in.known.last {
		in.known = now
	}
}

// Cursor returns the offset up to which messages were seen, or 0. Pass it to Follow.
func (in *Inbox) Cursor(ctx context.Context) (events.Offset, error) {
	now, err := in.sure(ctx)
	return now.cursor(), err
}

// Seen marks all messages up to an offset as seen. The cursor only moves forward; an earlier offset has no effect. If
// the inbox has no record at or after the offset, the error is *SeenError.
func (in *Inbox) Seen(ctx context.Context, at events.Offset) error {
	return in.decide(ctx, func(now inboxNow) error {
		if at <= now.cursor() {
			return nil
		}
		return in.move(ctx, now, at)
	})
}

// move moves the cursor, if the inbox's fields have not changed.
func (in *Inbox) move(ctx context.Context, now inboxNow, to events.Offset) error {
	part, err := in.seenPart(now, to)
	if err != nil {
		return err
	}
	_, err = in.st.Append(ctx, part.Subject, part.Expect, part.Events...)
	return err
}

// SeenPart returns the part that Seen would append, for a receiver that commits it together with its own work
// (tally.Store.AppendAll): both are stored, or neither. If another process moves the cursor meanwhile, the append fails
// with an error that matches log.ErrConflict; if it moved before, SeenPart returns *SeenError: start again at the
// cursor. Such a receiver handles one message after the other.
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

// Refused records that the receiver refused the message at an offset, so that the next attempt, in any process, comes
// at the right time (HandOverDue). If the message was seen meanwhile, the error is *SeenError.
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

// HandOver returns the attempts to hand over the next message, or the zero value if no attempt was refused.
func (in *Inbox) HandOver(ctx context.Context) (projector.HandOver, error) {
	now, err := in.sure(ctx)
	return now.handOver(), err
}

// update makes the append of a change of the inbox's fields, on the condition that they have not changed. It repeats
// all fields, so that readers find them near the end.
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
			value, _ = rawjson.Marshal(h) // encoding cannot fail: it was decoded from JSON
		}
		p.Set = append(p.Set, events.Field{Name: "handover", Value: value})
	}
	sub := in.subject()
	e, err := events.New(in.st.Source(), sub, &p)
	return log.Part{Subject: sub, Expect: log.Since(now.last, events.TypeSessionUpdated), Events: []events.Event{in.st.Stamp(e)}}, err
}

// cursorsAt returns the value of the field cursors.
func cursorsAt(at events.Offset) events.Raw {
	return events.Raw(fmt.Sprintf(`{%q:%d}`, projector.InboxThread, uint64(at)))
}
