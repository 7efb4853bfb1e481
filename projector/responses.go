package projector

import (
	"cmp"
	"slices"

	"github.com/tallylog/tally/events"
)

// paidFor names a response of a model.
type paidFor struct{ response, model string }

// response is what a ledger knows of the costs with one response.
type response struct {
	at    int  // where in Costs the one stands that counts
	first Cost // by offset
	best  Cost // as its own event says it
}

// counting is the cost that counts, where and for whom it does.
func (r *response) counting() Cost {
	c := r.best
	if c.Offset != r.first.Offset {
		c.First, c.Run = r.first.Offset, r.first.Run
	}
	return c
}

// spend takes the next cost. Of those with one response of a model one counts, in the place
// of the first; the others are superseded. An id that may be drawn twice joins none.
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

// forgetCosts leaves the costs to who has them elsewhere.
func (l *Ledger) forgetCosts() {
	l.Costs, l.Superseded = nil, nil
	clear(l.responses)
}
