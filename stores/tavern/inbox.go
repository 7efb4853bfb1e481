package tavern

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"sync"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/tavern/internal/layers"
)

// User is the receiver id of the person. It is always known.
const User = layers.User

// Inbox is a handle on a receiver's messages: the session inbox/<receiver>. Its thread inbox has the messages in the
// order of arrival. Its field cursors.inbox is the offset up to which the receiver has seen them. An inbox cannot be
// rewound, so a rewind of an agent leaves its mail delivered. The handle is safe for concurrent use, and caches only to
// save reads.
type Inbox struct {
	st       *tally.Store
	receiver string

	mu    sync.Mutex // guards known
	known inboxNow
}

// InboxOf returns a handle on a receiver's inbox, whether it exists or not.
//
// A receiver is known if the session agent/<receiver> exists. It gets messages unless its status is archived or
// stopped. A receiver that is not an agent, such as a program, is known from Open until Archive. User is always known.
func InboxOf(st *tally.Store, receiver string) *Inbox { return &Inbox{st: st, receiver: receiver} }

// Receiver returns the id of the inbox's receiver.
func (in *Inbox) Receiver() string { return in.receiver }

// Session returns the inbox's session.
func (in *Inbox) Session() *tally.Session { return in.st.Session(in.subject().ID) }

func (in *Inbox) subject() events.Subject {
	return projector.InboxSubject(in.st.Namespace(), in.receiver)
}

// Open creates the inbox of a receiver that is not an agent. If the inbox exists, nothing is written.
func (in *Inbox) Open(ctx context.Context, title string) error {
	_, err := in.Session().Create(ctx, events.SessionCreated{Kind: events.KindInbox, CreatedAt: events.TimestampOf(in.st.Now()), Title: title})
	if errors.Is(err, tally.ErrExists) {
		return nil
	}
	return err
}

// Archive closes the inbox of a receiver that is not an agent. From then on Send refuses messages to it. Its messages
// can still be read.
func (in *Inbox) Archive(ctx context.Context, reason string) error {
	return in.decide(ctx, func(now inboxNow) error {
		if err := in.exists(now); err != nil || projector.IsGone(now.status()) {
			return err
		}
		part, err := in.update(now, events.SessionUpdated{Set: events.Fields{{Name: "status", Value: events.Raw(`"archived"`)}}, Reason: reason})
		if err == nil {
			_, err = in.st.Append(ctx, part.Subject, part.Expect, part.Events...)
		}
		return err
	})
}

// exists returns a *ReceiverError if the inbox has no record.
func (in *Inbox) exists(now inboxNow) error {
	if now.last == 0 {
		return &ReceiverError{Receiver: in.receiver}
	}
	return nil
}

// Send delivers a message. When it returns without an error, the message is durable in the inbox. Concurrent senders do
// not conflict. Send returns the message with its id and offset. If a message with the same Key or ID was sent before,
// it returns that message.
//
// If a message passes over the tree of agents, the same append notifies parents: unless it goes from an agent to its
// parent or from a parent to its child, the parents of both get a notice that names it. Instead of a parent that is
// gone, the parent's parent gets the notice.
//
// Errors: *events.InvalidError for a message that lacks a required field, has a name longer than events.MaxIDLen bytes,
// sets a field that only Reply, Amend and notices set (Malfunction, Amends, About), or is larger than the store's
// Config.MaxValue (64 MiB; a body of more than 8 MiB is kept as a blob); *ReceiverError for a receiver that is unknown
// or gone, and for a sender that expects an answer and could not get it; *MessageError if another message has the id.
// If files of a tree do not show the message, Send returns the stored message with a *events.TreeError.
func (in *Inbox) Send(ctx context.Context, m Message) (Message, error) {
	if err := m.checkSent(); err != nil {
		return m, err
	}
	return in.send(ctx, m)
}

func (in *Inbox) send(ctx context.Context, m Message) (Message, error) {
	m, parts, err := in.parts(ctx, m)
	if err != nil {
		return m, err
	}
	acks, err := in.append(ctx, parts)
	if !events.IsStored(err) {
		return in.sentBefore(ctx, m, err)
	}
	m.Offset, m.Revision = acks[0].Last, acks[0].Last
	return m, err
}

// SendParts returns the parts that Send would append, for a caller that commits them together with other parts
// (tally.Store.AppendAll). The first part is the message, the others are notices.
func (in *Inbox) SendParts(ctx context.Context, m Message) (Message, []log.Part, error) {
	if err := m.checkSent(); err != nil {
		return m, nil, err
	}
	return in.parts(ctx, m)
}

// parts makes the append of a message.
func (in *Inbox) parts(ctx context.Context, m Message) (Message, []log.Part, error) {
	if m.To == "" {
		m.To = in.receiver
	}
	if m.To != in.receiver {
		return m, nil, &events.InvalidError{Field: "to", Reason: "it differs from the inbox's receiver"}
	}
	switch {
	case m.ID == "" && m.Key != "":
		m.ID = derivedID(m.From, m.Key)
	case m.ID == "":
		m.ID = in.st.Log.NewID()
	}
	meta := m.meta()
	e, err := eventOf(in.st.Namespace(), eventID(m.ID), meta, m.Body)
	if err != nil {
		return m, nil, err
	}
	parents, err := in.route(ctx, m)
	if err != nil {
		return m, nil, err
	}
	parts := []log.Part{{Subject: e.Subject, Events: []events.Event{e}}}
	for _, p := range parents {
		notice, err := noticeOf(in.st.Namespace(), p, meta)
		if err != nil {
			return m, nil, err
		}
		parts = append(parts, log.Part{Subject: notice.Subject, Events: []events.Event{notice}})
	}
	return m, parts, nil
}

// append appends parts. A single part is a plain append, which costs half.
func (in *Inbox) append(ctx context.Context, parts []log.Part) ([]log.Ack, error) {
	if len(parts) > 1 {
		return in.st.AppendAll(ctx, parts...)
	}
	ack, err := in.st.Append(ctx, parts[0].Subject, parts[0].Expect, parts[0].Events...)
	return []log.Ack{ack}, err
}

// sentBefore handles a failed append of a message that may be stored: the log has its id, or the outcome is unknown.
// The same message may be sent again with another deadline, or with another parent of its sender, and still counts as
// the same.
func (in *Inbox) sentBefore(ctx context.Context, m Message, failed error) (Message, error) {
	wrong, invalid := errors.AsType[*events.InvalidError](failed)
	_, partial := errors.AsType[*log.PartialError](failed)
	if !partial && !errors.Is(failed, log.ErrUnknown) && (!invalid || wrong.Field != "id") {
		return m, failed
	}
	first, _, err := in.find(ctx, m.ID)
	switch {
	case errors.Is(err, tally.ErrNotFound):
		return m, failed
	case err != nil:
		return m, err
	case first.From == m.From && first.Type == m.Type && first.Thread == m.Thread && first.ReplyTo == m.ReplyTo && bytes.Equal(first.Body, m.Body):
		return first, nil
	}
	return m, &MessageError{Inbox: in.receiver, ID: m.ID, Have: first.Offset}
}

// Reply answers a message of this inbox: it sends a message to the sender, in the same thread, with the same
// correlation. answer needs a Body. If Type is empty, it is the type that the sender expects. An answer of another type
// is delivered, and marked as a malfunction. A repeated answer of one type is the first one; with another body the
// error is *MessageError.
func (in *Inbox) Reply(ctx context.Context, to Message, answer Message) (Message, error) {
	r, err := in.reply(to, answer)
	if err != nil {
		return r, err
	}
	return InboxOf(in.st, to.From).send(ctx, r)
}

// ReplyParts returns the parts that Reply would append, as SendParts does. If the caller appends them together with
// SeenPart and its own work, each message is answered exactly once. An append may have each inbox only once, so use
// Reply for a message to oneself.
func (in *Inbox) ReplyParts(ctx context.Context, to Message, answer Message) (Message, []log.Part, error) {
	r, err := in.reply(to, answer)
	if err != nil {
		return r, nil, err
	}
	return InboxOf(in.st, to.From).parts(ctx, r)
}

func (in *Inbox) reply(to, answer Message) (Message, error) {
	if to.To != in.receiver || to.From == "" || to.ID == "" {
		return answer, &events.InvalidError{Field: "replyTo", Reason: "only a message of this inbox can be answered"}
	}
	if err := answer.checkSent(); err != nil {
		return answer, err
	}
	answer.From, answer.To, answer.ReplyTo = in.receiver, to.From, to.ID
	answer.Type = cmp.Or(answer.Type, to.Expects, TypeReply)
	answer.Thread = cmp.Or(answer.Thread, nameOf(to.Thread), projector.InboxThread)
	answer.Correlation = cmp.Or(answer.Correlation, nameOf(to.Correlation), to.ID)
	if to.Expects != "" && answer.Type != to.Expects {
		answer.Malfunction = MalfunctionType
	}
	if answer.ID == "" && answer.Key == "" {
		answer.ID = events.DerivedID("reply", in.receiver, to.ID, answer.Type)
	}
	return answer, nil
}

// Amend appends a newer text of a message: another message that names it, so that both stay and the receiver learns
// about it. base is the Revision that the caller knows. If the message has a newer one, the error is *AmendError; if
// the inbox does not have the message, *MessageError.
func (in *Inbox) Amend(ctx context.Context, id string, base events.Offset, body []byte) (Message, error) {
	old, err := in.textAt(ctx, id, base)
	if err != nil {
		return Message{}, err
	}
	meta := projector.MessageMeta{From: old.From, To: old.To, Type: old.Type, Thread: old.Thread, Amends: id, Base: base}
	meta.ID = events.DerivedID("amend", id, base.String())
	// All amendments of this text have the same id, so only the first one is stored.
	e, err := eventOf(in.st.Namespace(), eventID(meta.ID), meta, body)
	if err != nil {
		return Message{}, err
	}
	ack, err := in.st.Append(ctx, e.Subject, log.Any, e)
	wrong, invalid := errors.AsType[*events.InvalidError](err)
	switch {
	case invalid && wrong.Field == "id":
		_, now, ferr := in.find(ctx, id)
		if ferr != nil {
			return Message{}, ferr
		}
		return Message{}, &AmendError{Inbox: in.receiver, ID: id, Base: base, Have: now.Revision}
	case !events.IsStored(err):
		return Message{}, err
	}
	old.Body, old.Bytes, old.Revision = body, nil, ack.Last
	return old, err
}

// decide calls change with the present state of the inbox, and again if the inbox was changed meanwhile.
func (in *Inbox) decide(ctx context.Context, change func(inboxNow) error) error {
	for try := 1; ; try++ {
		now, err := in.now(ctx)
		if err != nil {
			return err
		}
		err = change(now)
		if _, conflict := errors.AsType[*log.ConflictError](err); !conflict || try == maxDecisions {
			return err
		}
		if err := pause(ctx, try); err != nil {
			return err
		}
	}
}
