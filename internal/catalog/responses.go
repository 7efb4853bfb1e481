package catalog

import (
	"context"
	"fmt"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
)

// responsesSchema defines the table of costs with a unique response id, one row per cost. Of the costs with one
// response and model in a namespace, only the last in key order counts. It counts for the session and the run of the
// cost with the lowest offset.
const responsesSchema = `
CREATE TABLE responses{set}(
	namespace TEXT NOT NULL, response TEXT NOT NULL, model TEXT NOT NULL, output_tokens INTEGER NOT NULL, offset INTEGER NOT NULL, session TEXT NOT NULL,
	day TEXT NOT NULL, run_kind TEXT NOT NULL, run_id TEXT NOT NULL, usd TEXT NOT NULL,
	input_tokens INTEGER NOT NULL, reasoning_tokens INTEGER NOT NULL, cache_read_tokens INTEGER NOT NULL, cache_write_tokens INTEGER NOT NULL,
	PRIMARY KEY(namespace, response, model, output_tokens, offset)) WITHOUT ROWID;
`

// responseKey identifies a response of a model.
type responseKey struct{ namespace, response, model string }

// paidResponse is a cost with a response, or the effective cost of one, and the id of its session.
type paidResponse struct {
	session string
	day     string
	projector.Cost
}

// defers keeps a cost with a response until the commit. Whether it counts depends on other costs, also of other
// sessions.
func (c *Catalog) defers(sub events.Subject, cost projector.Cost) {
	if c.paid == nil {
		c.paid = make(map[responseKey][]paidResponse)
	}
	key := responseKey{sub.Namespace, cost.Response, cost.Model}
	c.paid[key] = append(c.paid[key], paidResponse{sub.ID, cost.Day(), cost})
	c.held += rowSize
}

// undefer drops the costs of a subject since the last commit.
func (c *Catalog) undefer(sub events.Subject) {
	for key, list := range c.paid {
		if key.namespace == sub.Namespace {
			c.paid[key] = slices.DeleteFunc(list, func(p paidResponse) bool { return p.session == sub.ID })
		}
	}
}

// countingOf returns the effective cost of a response, or nil.
func countingOf(list []paidResponse) *paidResponse {
	if len(list) == 0 {
		return nil
	}
	first, best := list[0], list[0]
	for _, p := range list[1:] {
		if p.Offset < first.Offset {
			first = p
		}
		if p.Supersedes(best.Cost) {
			best = p
		}
	}
	best.session, best.Run = first.session, first.Run
	if best.Offset != first.Offset {
		best.First = first.Offset
	}
	return &best
}

// storePaid adds the new effective cost of each response since the last commit, and subtracts the previous one.
func (c *Catalog) storePaid(ctx context.Context) error {
	for sub := range c.gone {
		if err := c.touchPaid(ctx, sub); err != nil {
			return err
		}
	}
	for key, list := range c.paid {
		if err := c.storeResponse(ctx, key, list); err != nil {
			return err
		}
	}
	return nil
}

// touchPaid marks all responses with costs of a subject that is folded again.
func (c *Catalog) touchPaid(ctx context.Context, sub events.Subject) error {
	if !sub.IsSession() {
		return nil
	}
	rows, err := c.conn.QueryContext(ctx, "SELECT DISTINCT response, model FROM responses"+c.set+" WHERE namespace=? AND session=?", sub.Namespace, sub.ID)
	return each(rows, err, func() error {
		key := responseKey{namespace: sub.Namespace}
		err := rows.Scan(&key.response, &key.model)
		if _, there := c.paid[key]; err == nil && !there {
			if c.paid == nil {
				c.paid = make(map[responseKey][]paidResponse)
			}
			c.paid[key] = nil
		}
		return err
	})
}

func (c *Catalog) storeResponse(ctx context.Context, key responseKey, came []paidResponse) error {
	stored, err := c.loadPaid(ctx, key)
	if err != nil {
		return err
	}
	before := countingOf(stored)
	var kept []paidResponse
	for _, p := range stored {
		if !c.isGone(key.namespace, p.session) {
			kept = append(kept, p)
			continue
		}
		if err := c.run(ctx, "DELETE FROM responses{set} WHERE namespace=? AND response=? AND model=? AND output_tokens=? AND offset=?", key.namespace, key.response, key.model, p.Tokens.Output, int64(p.Offset)); err != nil {
			return err
		}
	}
	for _, p := range came {
		if err := c.put(ctx, "responses", valuesOf(p.columns(&key))...); err != nil {
			return err
		}
	}
	after := countingOf(append(kept, came...))
	if before != nil && c.isGone(key.namespace, before.session) {
		before = nil // its sums restart at zero, so nothing is subtracted
	}
	if before != nil && after != nil && before.Offset == after.Offset && before.CountsAt() == after.CountsAt() {
		return nil
	}
	if before != nil {
		if err := c.recount(ctx, key, before, projector.Total.Less); err != nil {
			return err
		}
	}
	if after != nil {
		return c.recount(ctx, key, after, projector.Total.Plus)
	}
	return nil
}

// isGone reports whether a session is folded again.
func (c *Catalog) isGone(namespace, session string) bool {
	_, gone := c.gone[events.Session(namespace, session)]
	return gone
}

// recount changes the sums of the session that a cost counts for.
func (c *Catalog) recount(ctx context.Context, key responseKey, p *paidResponse, change func(projector.Total, projector.Cost) projector.Total) error {
	sub := events.Session(key.namespace, p.session)
	s, err := c.session(ctx, sub)
	if err != nil {
		return err
	}
	if s == nil {
		return fmt.Errorf("response %q counts for %s, which does not exist", key.response, sub)
	}
	c.touch(s)
	return c.spend(ctx, s, newCostKey(p.day, p.Model, p.Run), func(t projector.Total) projector.Total { return change(t, p.Cost) })
}

// loadPaid reads the costs with one response.
func (c *Catalog) loadPaid(ctx context.Context, key responseKey) ([]paidResponse, error) {
	st, err := c.prepare(ctx, "SELECT * FROM responses{set} WHERE namespace=? AND response=? AND model=?")
	if err != nil {
		return nil, err
	}
	var list []paidResponse
	rows, err := st.QueryContext(ctx, key.namespace, key.response, key.model)
	err = each(rows, err, func() error {
		var p paidResponse
		var of responseKey
		p.Run = new(events.RunRef)
		err := rows.Scan(p.columns(&of)...)
		if p.Response, p.Model = of.response, of.model; *p.Run == (events.RunRef{}) {
			p.Run = nil
		}
		list = append(list, p)
		return err
	})
	return list, err
}

// columns returns pointers to the stored columns of a cost with a response.
func (p *paidResponse) columns(key *responseKey) []any {
	run := p.Run
	if run == nil {
		run = new(events.RunRef)
	}
	t := &p.Tokens
	return []any{&key.namespace, &key.response, &key.model, &t.Output, offset(&p.Offset), &p.session, &p.day, &run.Kind, &run.ID, &p.USD,
		&t.Input, &t.Reasoning, &t.CacheRead, &t.CacheWrite}
}
