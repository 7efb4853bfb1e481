package projector

import (
	"cmp"
	"slices"

	"github.com/tallylog/tally/events"
)

// paidFor identifies a response of a model.
type paidFor struct{ response, model string }

// response is the state of the costs with one response.
type response struct {
	at    int  // index in Costs of the effective one
	first Cost // by offset
	best  Cost // as its own event reports it
}

// counting returns the effective cost, with the offset and run that it counts for.
func (r *response) counting() Cost {
	c := r.best
	if c.Offset != r.first.Offset {
		c.First, c.Run = r.first.Offset, r.first.Run
	}
	return c
}

// spend folds the next cost. Of the costs with one response of a model, one is effective and counts at the offset of
// the first; the others are superseded. Costs whose response id is not unique are not joined.
func (l *Ledger) spend(c Cost) {
	key := paidFor{c.Response, c.Model}
	r := l.responses[key]
	if unique := events.IsUnique(c.Response); !unique || r == nil {
		if unique {
			l.responses[key] = &response{len(l.Costs), c, c}
		}
		l.Costs = append(l.Costs, c)
		return
	}
	beaten := c
	if c.Supersedes(r.best) {
		beaten, r.best = r.best, c
	}
	l.Costs[r.at] = r.counting()
	i, _ := slices.BinarySearchFunc(l.Superseded, beaten.Offset, func(c Cost, at events.Offset) int { return cmp.Compare(c.Offset, at) })
	l.Superseded = slices.Insert(l.Superseded, i, beaten)
}

// forgetCosts drops the costs, for a caller that stores them elsewhere.
func (l *Ledger) forgetCosts() {
	l.Costs, l.Superseded = nil, nil
	clear(l.responses)
}
