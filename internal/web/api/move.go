package api

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/internal/reads"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/internal/web"
	"github.com/tallylog/tally/log"
)

// wish is a move to plan.
type wish struct {
	Op     string `json:"op"`               // rewind, undo or redo
	To     string `json:"to,omitempty"`     // of a rewind: a position
	Reason string `json:"reason,omitempty"` // of a rewind, for readers of the log
}

func planMove(c *web.Call) error {
	var w wish
	if err := rawjson.Unmarshal(c.Body, &w); err != nil {
		return err
	}
	p, err := reads.Reader{Store: c.Store}.Plan(c.Context(), reads.PlanQuery{Session: c.Path("id"), Op: w.Op, To: w.To, Reason: w.Reason})
	if err != nil {
		return err
	}
	return c.JSON(200, p)
}

// moved is the answer to a move.
type moved struct {
	Written bool `json:"written"` // false: the turns were so already
	ack
}

// makeMove makes the move of a plan, whose JSON is the body.
func makeMove(c *web.Call) error {
	var p reads.Plan
	if err := rawjson.Unmarshal(c.Body, &p); err != nil {
		return err
	}
	if p.Seen > events.MaxOffset {
		return invalid("seen", "want an offset")
	}
	a, err := reads.Reader{Store: c.Store}.Move(c.Context(), reads.MoveQuery{Session: c.Path("id"), Plan: p, Source: c.Token.Source(), Actor: c.Token.Name})
	if conflict, ok := errors.AsType[*log.ConflictError](err); ok {
		return precondition(p.Seen, conflict.Have, err.Error())
	}
	if !events.IsStored(err) {
		return err
	}
	if a.Last == 0 {
		a.Durability = c.Store.Log.Durability()
	}
	c.SetHeader("Tally-Offset", fmt.Sprint(uint64(a.Last)))
	return c.JSON(200, moved{a.Last != 0, ackOf(a)})
}

// forkWish is a fork to make.
type forkWish struct {
	At string `json:"at,omitempty"` // a position; default: the head
	ID string `json:"id,omitempty"` // of the new session; default: the Idempotency-Key, else a name made of the parent's
}

func forkSession(c *web.Call) error {
	var w forkWish
	if err := rawjson.Unmarshal(c.Body, &w); err != nil {
		return err
	}
	key, err := c.Key()
	if err != nil {
		return err
	}
	parent, id := c.Store.Session(c.Path("id")), cmp.Or(w.ID, key)
	fork, a, err := parent.Fork(c.Context(), w.At, id)
	out := ackOf(a)
	if errors.Is(err, tally.ErrExists) && key != "" {
		if at, ok := forkedBefore(c, id, parent.ID()); ok {
			fork, err = c.Store.Session(id), nil
			out = ack{First: at, Last: at, Durability: c.Store.Log.Durability().String(), Duplicate: true}
		}
	}
	if !events.IsStored(err) {
		return err
	}
	out.ID = render.ID(fork.ID())
	c.SetHeader("Location", "/v1/sessions/"+url.PathEscape(fork.ID()))
	return answerAck(c, 201, out)
}

// forkedBefore reports whether the token has made a fork before, and where its first record is.
func forkedBefore(c *web.Call, id, parent string) (events.Offset, bool) {
	for rec, err := range c.Store.Log.Read(c.Context(), events.Range{Subject: c.Store.Session(id).Subject(), Limit: 1}) {
		if err != nil {
			return 0, false
		}
		p, err := events.DecodeAs[events.SessionCreated](rec.Event)
		return rec.Offset, err == nil && rec.Source == c.Token.Source() && p.Fork != nil && p.Fork.Session == parent
	}
	return 0, false
}
