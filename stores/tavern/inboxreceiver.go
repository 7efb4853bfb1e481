package tavern

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/projector"
)

// correspondent is a sender or receiver of messages.
type correspondent struct {
	id     string
	known  bool
	status string
	parent string // id of the agent that started it, or ""
}

// refuse returns a *ReceiverError if the correspondent gets no messages.
func (c correspondent) refuse() error {
	switch {
	case !c.known:
		return &ReceiverError{Receiver: c.id}
	case projector.IsGone(c.status):
		return &ReceiverError{Receiver: c.id, Status: c.status}
	}
	return nil
}

// correspondent looks up a sender or receiver. For an agent it reads the status and the parent of the session
// agent/<id>. Other correspondents are known if they have an inbox, which is checked only if inbox is set.
func (in *Inbox) correspondent(ctx context.Context, id string, inbox bool) (correspondent, error) {
	c := correspondent{id: id}
	if id == User {
		c.known = true
		return c, nil
	}
	sub := events.Session(in.st.Namespace(), agentSessions+id)
	if err := sub.Validate(); err != nil {
		return c, err
	}
	o, err := in.st.Loader().Peek(ctx, sub)
	if err != nil {
		return c, err
	}
	if l := o.Ledger(); l.Records > 0 && l.Kind == events.KindAgent {
		c.known, c.status = true, l.Text("status")
		if l.Parent != nil {
			c.parent, _ = strings.CutPrefix(l.Parent.Session, agentSessions)
			if c.parent == l.Parent.Session {
				c.parent = "" // an agent of a conversation
			}
		}
		return c, nil
	}
	if !inbox {
		return c, nil
	}
	now, err := in.of(id).now(ctx)
	c.known, c.status = now.last > 0, now.status()
	return c, err
}

// of returns the handle on a receiver's inbox.
func (in *Inbox) of(receiver string) *Inbox {
	if receiver == in.receiver {
		return in
	}
	return InboxOf(in.st, receiver)
}

// route returns the parents that get a notice of a message, or an error if it cannot be sent.
func (in *Inbox) route(ctx context.Context, m Message) ([]string, error) {
	to, err := in.correspondent(ctx, m.To, true)
	if err == nil {
		err = to.refuse()
	}
	if err != nil {
		return nil, err
	}
	awaits := m.meta().Awaits()
	from, err := in.correspondent(ctx, m.From, awaits)
	if err == nil && awaits {
		err = from.refuse()
	}
	if err != nil || from.parent == to.id || to.parent == from.id || from.id == to.id {
		return nil, err
	}
	return in.passed(ctx, from, to)
}

// passed returns the agents that a message passes over: the nearest agents above its sender and above its receiver that
// get messages. If sender or receiver is above the other, no agent above it counts.
func (in *Inbox) passed(ctx context.Context, from, to correspondent) (told []string, err error) {
	overSender, err := in.above(ctx, from)
	if err != nil {
		return nil, err
	}
	overReceiver, err := in.above(ctx, to)
	if err != nil {
		return nil, err
	}
	is := func(id string) func(correspondent) bool {
		return func(c correspondent) bool { return c.id == id }
	}
	tell := func(list []correspondent) {
		i := slices.IndexFunc(list, func(c correspondent) bool { return c.refuse() == nil })
		if i >= 0 && list[i].id != from.id && list[i].id != to.id && !slices.Contains(told, list[i].id) {
			told = append(told, list[i].id)
		}
	}
	if !slices.ContainsFunc(overReceiver, is(from.id)) {
		tell(overSender)
	}
	if !slices.ContainsFunc(overSender, is(to.id)) {
		tell(overReceiver)
	}
	return told, nil
}

// maxParents bounds how far up parents are looked up. Trees of agents are less deep, and circles of parents end here.
const maxParents = 32

// above lists the agents above a correspondent, the nearest first, each once.
func (in *Inbox) above(ctx context.Context, c correspondent) (list []correspondent, err error) {
	met := map[string]bool{c.id: true}
	for c.parent != "" && !met[c.parent] && len(list) < maxParents {
		met[c.parent] = true
		c, err = in.correspondent(ctx, c.parent, false)
		if wrong, ok := errors.AsType[*events.InvalidError](err); ok && wrong.Field == "subject" {
			return list, nil // no agent can have that id
		}
		if err != nil {
			return nil, err
		}
		list = append(list, c)
	}
	return list, nil
}

// noticeOf returns the event that notifies a parent of a message. Its body repeats the message's meta. About names the
// message, which is in the log just before the notice (Inbox.About).
func noticeOf(ns, parent string, m projector.MessageMeta) (events.Event, error) {
	body, err := rawjson.Marshal(struct {
		From  string `json:"from"`
		To    string `json:"to"`
		Type  string `json:"type"`
		Class string `json:"class,omitempty"`
	}{m.From, m.To, m.Type, m.Class})
	if err != nil {
		return events.Event{}, err
	}
	notice := projector.MessageMeta{ID: events.DerivedID("notice", m.To, m.ID, parent), From: m.From, To: parent, Type: TypeNotice, Thread: m.Thread,
		Correlation: m.Correlation, About: &projector.MessageRef{Inbox: m.To, ID: m.ID}}
	return eventOf(ns, eventID(notice.ID), notice, body)
}
