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

// correspondent is who sends or gets messages.
type correspondent struct {
	id     string
	known  bool
	status string
	parent string // id of the agent that it was made by; "": none
}

// refuse returns a *ReceiverError if nobody can send to it.
func (c correspondent) refuse() error {
	switch {
	case !c.known:
		return &ReceiverError{Receiver: c.id}
	case projector.IsGone(c.status):
		return &ReceiverError{Receiver: c.id, Status: c.status}
	}
	return nil
}

// correspondent looks up who somebody is: an agent by its session agent/<id>, of which its
// status and the parent of its session.created are read. Of others the inbox says whether
// they are known, if that is asked for.
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

// of returns the handle on a receiver's inbox, this one if it is its own.
func (in *Inbox) of(receiver string) *Inbox {
	if receiver == in.receiver {
		return in
	}
	return InboxOf(in.st, receiver)
}

// route says which parents are to be told of a message, or why it cannot be sent.
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

// passed returns the agents that a message goes past: the next ones above its sender and its
// receiver that still get messages, but nobody above the one of them who is above the other.
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

// maxParents bounds how far up parents are looked for. A tree of agents is not that deep,
// and parents that go round have an end.
const maxParents = 32

// above lists the agents above one, the nearest first, each once.
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

// noticeOf returns the event that tells a parent of a message. Its body says what the
// message's meta does; About names the message, which is in the log just before the notice
// (Inbox.About).
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
