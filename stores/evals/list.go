package evals

import (
	"context"
	"fmt"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// List returns a handle on each conversation of the store's namespace, in the order of their ids. It omits sessions
// of other kinds.
func List(ctx context.Context, st *tally.Store) ([]*Conversation, error) {
	sessions, err := st.Sessions(ctx, events.KindConversation)
	var list []*Conversation
	for _, s := range sessions {
		list = append(list, Of(st, s.ID))
	}
	return list, err
}

// Get returns a handle on a conversation, and whether it exists.
func Get(ctx context.Context, st *tally.Store, id string) (*Conversation, bool, error) {
	c := Of(st, id)
	if err := c.s.Subject().Validate(); err != nil {
		return nil, false, err
	}
	found, err := c.Exists(ctx)
	if err != nil || !found {
		return nil, false, err
	}
	return c, true, nil
}

// Created is the result of Create.
type Created struct {
	Existed bool             // the conversation existed, and nothing was written
	At      events.Timestamp // time of its creation: the first one counts
}

// Create creates a conversation without steps, for List and Get. If it exists already, it stays as it is, with its
// createdAt, and there is no error. If the id is of a session of another kind, the error is a *tally.KindError.
func Create(ctx context.Context, st *tally.Store, id string) (*Conversation, Created, error) {
	c := Of(st, id)
	made := Created{}
	_, err := c.update(ctx, nil, func(o *projector.Outline) (events.Payload, error) {
		if made.Existed = o.Offset() > 0; made.Existed {
			return nil, nil
		}
		made.At = events.TimestampOf(st.Now())
		return &events.SessionCreated{Kind: events.KindConversation, CreatedAt: made.At}, nil
	})
	if err == nil && made.Existed {
		made.At, err = c.CreatedAt(ctx)
	}
	if err != nil {
		return nil, Created{}, err
	}
	return c, made, nil
}

// Save gets or creates a conversation and saves its content.
func Save(ctx context.Context, st *tally.Store, id string, data *Data) (*Conversation, Saved, error) {
	if err := data.validate(); err != nil {
		return nil, Saved{}, err
	}
	c, made, err := Create(ctx, st, id)
	if err != nil {
		return nil, Saved{}, err
	}
	saved, err := c.Save(ctx, data)
	saved.Created = err == nil && !made.Existed
	return c, saved, err
}

// kindOf returns the kind of a session, "" if it does not exist. Usually its first record has the kind.
func kindOf(ctx context.Context, st *tally.Store, sub events.Subject) (string, error) {
	for rec, err := range st.Log.Read(ctx, events.Range{Subject: sub, Limit: 1}) {
		if events.IsDamage(err) {
			break
		}
		if err != nil {
			return "", fmt.Errorf("kind of %s: %w", sub, err)
		}
		p, ok := projector.Decode(rec).Payload.(*events.SessionCreated)
		if ok && p.Fork == nil {
			return p.Kind, nil
		}
	}
	o, err := st.Loader().Peek(ctx, sub)
	if err != nil || o.Ledger().Records == 0 {
		return "", err
	}
	return o.Ledger().Kind, nil
}

// Change is the kind of a save.
type Change uint8

// Kinds of saves.
const (
	NoChange    Change = iota // the content was stored already: nothing was written
	Extension                 // new steps were appended
	Replacement               // the content replaced another, which stays readable
)

func (c Change) String() string {
	switch c {
	case Extension:
		return "extended"
	case Replacement:
		return "replaced"
	}
	return "unchanged"
}

// Saved is the result of a save.
type Saved struct {
	Change  Change
	Created bool // the conversation is new; only the function Save sets it
	New     int  // number of steps that were written; the others were stored already
	Ack     log.Ack
}
