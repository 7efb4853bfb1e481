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

// User is the receiver who is the person. It is always known.
const User = layers.User

// Inbox is a handle on what a receiver is sent: the session inbox/<receiver>. Its thread
// inbox has the messages, in the order in which they came; its field cursors.inbox says up
// to where they were seen. It is not rewound, so that a rewind of an agent leaves its mail
// delivered. The handle is safe for concurrent use, and what it remembers only saves reads.
type Inbox struct {
	st       *tally.Store
	receiver string

	mu    sync.Mutex // guards known
	known inboxNow
}

// InboxOf returns a handle on a receiver's inbox, whether there is one or not.
//
// A receiver is known if the session agent/<receiver> exists; its status says whether it
// gets messages: not when it is archived or stopped. A receiver that is not an agent, such
// as a program, is known once its inbox is there (Open), until that is archived. User is
// known always.
func InboxOf(st *tally.Store, receiver string) *Inbox { return &Inbox{st: st, receiver: receiver} }

// Receiver is whose inbox it is.
func (in *Inbox) Receiver() string { return in.receiver }

// Session is the inbox's session.
func (in *Inbox) Session() *tally.Session { return in.st.Session(in.subject().ID) }

func (in *Inbox) subject() events.Subject {
	return projector.InboxSubject(in.st.Namespace(), in.receiver)
}

// Open makes the inbox of a receiver that is not an agent. One that is there is left as it is.
func (in *Inbox) Open(ctx context.Context, title string) error {
	_, err := in.Session().Create(ctx, events.SessionCreated{Kind: events.KindInbox, CreatedAt: events.TimestampOf(in.st.Now()), Title: title})
	if errors.Is(err, tally.ErrExists) {
		return nil
	}
	return err
}

// Archive ends an inbox of a receiver that is not an agent: from then on nobody can send to
// it. What is in it can be read.
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

// Send delivers a message: when it returns without an error, the message is durable in the
// inbox. Senders never get in each other's way. What is returned is the message with its id
// and offset; sent again with the same Key, or id, it is what was sent the first time.
//
// A message that goes past the tree of agents is told to parents, in the same append: unless
// it goes from an agent to its parent or from a parent to its child, the parents of both get
// a notice that names it. A parent that is gone is passed over for its own.
//
// Errors: *events.InvalidError for a message without what it needs, one with a name of more
// than events.MaxIDLen bytes, one that says what only
// Reply, Amend and notices do (Malfunction, Amends, About), or one larger than
// Config.MaxValue of the store (64 MiB; a body of more than 8 MiB is kept as a blob);
// *ReceiverError for a receiver that is not known or gone, and for a sender that awaits an
// answer and could not get one; *MessageError if the id is another message's. If files of a tree do not show the message, which
// is stored, it comes together with a *tally.TreeError.
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

// SendParts returns what Send would append, for a caller that commits it together with
// something else (tally.Store.AppendAll): the first part is the message, the others are
// notices.
func (in *Inbox) SendParts(ctx context.Context, m Message) (Message, []log.Part, error) {
	if err := m.checkSent(); err != nil {
		return m, nil, err
	}
	return in.parts(ctx, m)
}

// parts returns the append that brings a message.
func (in *Inbox) parts(ctx context.Context, m Message) (Message, []log.Part, error) {
	if m.To == "" {
		m.To = in.receiver
	}
	if m.To != in.receiver {
		return m, nil, &events.InvalidError{Field: "to", Reason: "it is sent to the inbox of another receiver"}
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

// append appends parts; one alone as such, which costs half.
func (in *Inbox) append(ctx context.Context, parts []log.Part) ([]log.Ack, error) {
	if len(parts) > 1 {
		return in.st.AppendAll(ctx, parts...)
	}
	ack, err := in.st.Append(ctx, parts[0].Subject, parts[0].Expect, parts[0].Events...)
	return []log.Ack{ack}, err
}

// sentBefore says what an append means that failed as the log has its id, or that of a part
// of it, or of which nobody knows: the message may be there. The same one may be sent with
// another deadline, or when its sender has another parent, and is still the one that was sent.
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

// Reply answers a message that this inbox got: a message to its sender, in the same thread,
// with its correlation. answer needs a Body; Type is what the sender expects if it is not
// said. An answer of another type is delivered, and marked as a malfunction. One answer of a
// type is made once: again it is what was sent the first time, and with another body a
// *MessageError.
func (in *Inbox) Reply(ctx context.Context, to Message, answer Message) (Message, error) {
	r, err := in.reply(to, answer)
	if err != nil {
		return r, err
	}
	return InboxOf(in.st, to.From).send(ctx, r)
}

// ReplyParts returns what Reply would append, as SendParts does: with SeenPart and the
// caller's own work in one append, a message is answered exactly once. One append has each
// inbox once, so a message to oneself is answered by Reply.
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

// Amend gives a message a newer text: a message of its own that names it, so that both stay
// and its receiver learns of it. base is the Revision that the caller knew; if there is a
// newer one, the error is *AmendError. A message that is not in the inbox is *MessageError.
func (in *Inbox) Amend(ctx context.Context, id string, base events.Offset, body []byte) (Message, error) {
	old, err := in.textAt(ctx, id, base)
	if err != nil {
		return Message{}, err
	}
	meta := projector.MessageMeta{From: old.From, To: old.To, Type: old.Type, Thread: old.Thread, Amends: id, Base: base}
	meta.ID = events.DerivedID("amend", id, base.String())
	// The id is that of whoever amends this text, so of two only the first one does.
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

// decide has a change decided on what the inbox is, and anew if it was changed meanwhile.
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
