package projector

import (
	"cmp"
	"math/big"
	"slices"
	"strings"

	"github.com/tallylog/tally/events"
)

// RunOf returns the run that a payload names, or nil.
func RunOf(p events.Payload) *events.RunRef {
	switch p := p.(type) {
	case *events.RunCreated:
		return &p.Run
	case *events.RunStarted:
		return &p.Run
	case *events.RunProgressed:
		return &p.Run
	case *events.RunFinished:
		return &p.Run
	case *events.RunAnnotated:
		return &p.Run
	}
	return nil
}

// Run returns a run by its identity, or nil if no event names it.
func (l *Ledger) Run(ref events.RunRef) *Run {
	if l.runs != nil {
		return l.runs[ref]
	}
	if i := slices.IndexFunc(l.Runs, func(r *Run) bool { return r.Ref() == ref }); i >= 0 {
		return l.Runs[i]
	}
	return nil
}

// run returns a run. If no earlier event names it, this event creates it.
func (l *Ledger) run(f Fact, ref events.RunRef) *Run {
	r := l.Run(ref)
	if r == nil {
		r = &Run{Kind: ref.Kind, ID: ref.ID, At: f.Offset}
		l.Runs = append(l.Runs, r)
		if l.runs != nil {
			l.runs[ref] = r
		}
	}
	return r
}

// fenceOf returns the claim that an event belongs to, or 0 if the event does not name it.
func fenceOf(p events.Payload) events.Offset {
	switch p := p.(type) {
	case *events.RunProgressed:
		return p.Fence
	case *events.RunFinished:
		return p.Fence
	}
	return 0
}

// Apply folds the next event that names the run.
func (r *Run) Apply(f Fact) {
	if fence := fenceOf(f.Payload); fence != 0 && fence != r.Claim {
		r.Fenced = append(r.Fenced, f.Offset)
		return
	}
	switch p := f.Payload.(type) {
	case *events.RunCreated:
		r.created(f, p)
	case *events.RunStarted:
		r.Starts++
		r.Claim, r.Worker, r.Attempt, r.LeaseUntil = f.Offset, p.Worker, p.Attempt, p.LeaseUntil
		r.Models = orOld(p.Models, r.Models)
	case *events.RunProgressed:
		r.Progress++
		if p.State != nil {
			r.State = p.State.To
		}
		if p.LeaseUntil != nil {
			r.LeaseUntil = *p.LeaseUntil
		}
	case *events.RunFinished:
		r.Results = append(r.Results, Result{f.Offset, p.Outcome, p.Schema, p.FinishedAt, len(p.Result), p.Judged})
	case *events.RunAnnotated:
		r.annotated(p)
	}
}

func (r *Run) created(f Fact, p *events.RunCreated) {
	if r.Created != 0 {
		r.TouchedAt = p.CreatedAt
		return
	}
	r.Created, r.CreatedAt, r.Models = f.Offset, p.CreatedAt, orOld(p.Models, r.Models)
	r.Owner, r.Parent, r.Template, r.After, r.DueAt = p.Owner, p.Parent, p.Template, p.After, p.DueAt
	if p.Setting != nil {
		r.Setting = f.Offset
	}
}

func (r *Run) annotated(p *events.RunAnnotated) {
	for _, s := range []struct {
		to   *string
		from *string
	}{{&r.Note, p.Note}, {&r.Selected, p.Selected}, {&r.Rating, p.Rating}} {
		if s.from != nil {
			*s.to = *s.from
		}
	}
	r.AppliedFiles, r.Tags = orOld(p.AppliedFiles, r.AppliedFiles), orOld(p.Tags, r.Tags)
	if p.TouchedAt != "" {
		r.TouchedAt = p.TouchedAt
	}
}

// CostOf converts a cost.accrued event to a cost.
func CostOf(f Fact, p *events.CostAccrued) Cost {
	c := Cost{Offset: f.Offset, Time: f.Happened(), Model: p.Model, USD: p.USD, Run: p.Run, Terms: events.TermsOf(p.Raw), Response: p.Response, Purpose: p.Purpose, Source: p.Source}
	if p.Tokens != nil {
		c.Tokens = *p.Tokens
	}
	return c
}

// Day returns the date of the cost, such as 2026-03-01.
func (c Cost) Day() string { return string(c.Time)[:len("2006-01-02")] }

// CountsAt returns the offset in the session where the cost counts.
func (c Cost) CountsAt() events.Offset { return cmp.Or(c.First, c.Offset) }

// Supersedes reports whether c, of two costs with one response, is effective: the one with the most output tokens, of
// equals the last.
func (c Cost) Supersedes(o Cost) bool {
	return cmp.Or(cmp.Compare(c.Tokens.Output, o.Tokens.Output), cmp.Compare(c.Offset, o.Offset)) > 0
}

// Total is a sum of costs.
type Total struct {
	USD    events.Amount `json:"usd"`
	Tokens events.Tokens `json:"tokens"`
	Events int           `json:"events"`
}

// Plus returns the sum including one more cost.
func (t Total) Plus(c Cost) Total {
	var usd decimal
	usd.add(t.USD)
	usd.add(c.USD)
	return Total{usd.amount(), t.Tokens.Add(c.Tokens), t.Events + 1}
}

// Less returns the sum without a cost.
func (t Total) Less(c Cost) Total {
	var usd decimal
	usd.add(t.USD)
	usd.take(c.USD)
	return Total{usd.amount(), t.Tokens.Less(c.Tokens), t.Events - 1}
}

// Totals sums costs exactly, in groups by key.
type Totals[K comparable] struct {
	usd    map[K]*decimal
	tokens map[K]events.Tokens
	count  map[K]int
	keys   []K
}

// Add counts a cost under a key.
func (t *Totals[K]) Add(key K, c Cost) { t.AddTotal(key, Total{c.USD, c.Tokens, 1}) }

// AddTotal counts a sum of costs under a key.
func (t *Totals[K]) AddTotal(key K, sum Total) {
	if t.usd == nil {
		t.usd, t.tokens, t.count = make(map[K]*decimal), make(map[K]events.Tokens), make(map[K]int)
	}
	if t.usd[key] == nil {
		t.usd[key] = new(decimal)
		t.keys = append(t.keys, key)
	}
	t.usd[key].add(sum.USD)
	t.tokens[key] = t.tokens[key].Add(sum.Tokens)
	t.count[key] += sum.Events
}

// Keys lists the groups in the order of their first cost.
func (t *Totals[K]) Keys() []K { return t.keys }

// Of returns the sum of a group.
func (t *Totals[K]) Of(key K) Total {
	usd := t.usd[key]
	if usd == nil {
		usd = new(decimal)
	}
	return Total{usd.amount(), t.tokens[key], t.count[key]}
}

// decimal is an exact sum: n / 10^places.
type decimal struct {
	n      big.Int
	places int
}

// take subtracts an amount.
func (d *decimal) take(a events.Amount) {
	d.n.Neg(&d.n)
	d.add(a)
	d.n.Neg(&d.n)
}

// add adds an amount. It ignores text that is not an amount.
func (d *decimal) add(a events.Amount) {
	whole, frac, _ := strings.Cut(string(a), ".")
	v, ok := new(big.Int).SetString(whole+frac, 10)
	if !ok {
		return
	}
	if more := len(frac) - d.places; more > 0 {
		d.n.Mul(&d.n, tenTo(more))
		d.places += more
	} else if more < 0 {
		v.Mul(v, tenTo(-more))
	}
	d.n.Add(&d.n, v)
}

func (d *decimal) amount() events.Amount {
	return events.AmountOf(new(big.Rat).SetFrac(&d.n, tenTo(d.places)))
}

func tenTo(n int) *big.Int { return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil) }

// Spent returns the sum of all costs of the session, rewound or not.
func (l *Ledger) Spent() Total {
	var t Totals[struct{}]
	for _, c := range l.Costs {
		t.Add(struct{}{}, c)
	}
	return t.Of(struct{}{})
}
