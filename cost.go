package tally

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// Cost is money and tokens spent on a model.
type Cost struct {
	Model    string
	USD      events.Amount  // exact; see USD for one that is a float
	Tokens   *events.Tokens // in disjoint classes; nil: not known
	Run      events.RunRef  // that it was spent in; default: none
	Part     string         // which of the model's costs in the run: a step, an attempt
	Response string         // the maker's id of the answer that was paid for; default: none. Of the costs of a model with one response one counts, if events.IsUnique accepts the id
	Purpose  string         // run, compaction, judge or other; default: run
	Source   string         // reported or computed; default: reported
	At       time.Time      // when; default: now
}

// AddCost records a cost. The same model, run, part and purpose again is the same cost,
// so that what was resumed or is repeated counts once; other figures for them are an
// *events.InvalidError. Without a run every call counts.
func (s *Session) AddCost(ctx context.Context, c Cost) (log.Ack, error) {
	p := &events.CostAccrued{Model: c.Model, USD: c.USD, Tokens: c.Tokens, Response: c.Response, Purpose: cmp.Or(c.Purpose, "run"), Source: cmp.Or(c.Source, "reported")}
	ofRun := c.Run != events.RunRef{}
	if ofRun {
		p.Run = &c.Run
	}
	e, err := events.New(s.st.config.Source, s.sub, p)
	if err != nil {
		return log.Ack{}, err
	}
	e.Time = c.At
	if ofRun {
		e.Source = costSource
		e.ID = events.DerivedID(append([]string{"cost", s.ID()}, append(partsOf(c.Run), c.Model, p.Purpose, c.Part)...)...)
	}
	return s.append(ctx, log.Any, e)
}

// costSource is the source of costs whose identity follows from their run.
const costSource = "urn:tally:cost"

// partsOf returns what of a run its costs' identities are made of. Those of panels were
// there first, when there were no others.
func partsOf(r events.RunRef) []string {
	if r.Kind == "panel" {
		return []string{r.ID}
	}
	return []string{r.Kind, r.ID}
}

// CostTable is a sum of costs and its parts.
type CostTable struct {
	Total  projector.Total
	Models map[string]projector.Total
	Runs   map[events.RunRef]projector.Total // what has no run is in Total
	Days   map[string]projector.Total        // by day in UTC
}

// Costs are the costs of a session by its own events: what was spent, and the part of it that
// led to where the session is now.
type Costs struct {
	Spent    CostTable
	OnBranch CostTable
}

// ErrOverflow says that a sum of tokens does not fit a number.
var ErrOverflow = errors.New("the tokens are more than can be counted")

// Costs sums the costs of the session; one that does not exist has none.
func (s *Session) Costs(ctx context.Context) (Costs, error) {
	now, err := s.st.loader.Peek(ctx, s.sub)
	if err != nil {
		return Costs{}, err
	}
	whole, err := now.Session(ctx)
	if err != nil {
		return Costs{}, err
	}
	return CostsOf(whole)
}

// CostsOf sums the costs of a session that is loaded already. Sums of money
// are exact; one of tokens that is too large is ErrOverflow.
func CostsOf(head *projector.Session) (Costs, error) {
	var spent, branch costSums
	for _, c := range head.Ledger.Costs {
		err := spent.add(c)
		if err == nil && head.History.IsLive(c.CountsAt()) {
			err = branch.add(c)
		}
		if err != nil {
			return Costs{}, fmt.Errorf("%s: the cost at %v: %w", head.Subject.Name(), c.Offset, err)
		}
	}
	return Costs{spent.table(), branch.table()}, nil
}

// costSums are sums by several keys at once.
type costSums struct {
	all          projector.Totals[struct{}]
	models, days projector.Totals[string]
	runs         projector.Totals[events.RunRef]
	tokens       events.Tokens
}

func (t *costSums) add(c projector.Cost) error {
	sum := t.tokens.Add(c.Tokens)
	if min(sum.Input, sum.Output, sum.Reasoning, sum.CacheRead, sum.CacheWrite, sum.Total()) < 0 {
		return ErrOverflow
	}
	t.tokens = sum
	t.all.Add(struct{}{}, c)
	t.models.Add(c.Model, c)
	if c.Run != nil {
		t.runs.Add(*c.Run, c)
	}
	if at, ok := c.Time.Time(); ok {
		t.days.Add(at.UTC().Format(time.DateOnly), c)
	}
	return nil
}

func (t *costSums) table() CostTable {
	return CostTable{t.all.Of(struct{}{}), totals(&t.models), totals(&t.runs), totals(&t.days)}
}

func totals[K comparable](t *projector.Totals[K]) map[K]projector.Total {
	list := make(map[K]projector.Total)
	for _, key := range t.Keys() {
		list[key] = t.Of(key)
	}
	return list
}
