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
	USD      events.Amount  // exact; USD converts a float
	Tokens   *events.Tokens // in disjoint classes; nil: unknown
	Run      events.RunRef  // in which it was spent; default: none
	Part     string         // distinguishes the model's costs in the run: a step, an attempt
	Response string         // the maker's id of the answer that was paid for; default: none. If events.IsUnique accepts it, only one of a model's costs with this id counts
	Purpose  string         // run, compaction, judge or other; default: run
	Source   string         // reported or computed; default: reported
	At       time.Time      // default: now
}

// AddCost records a cost. A second cost of the same model, run, part and purpose is the same cost, so resumed or
// repeated work counts once; other figures for it are an *events.InvalidError. Without a run every call counts.
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

// partsOf returns the parts of a run from which its costs' ids are derived. For panels there is no kind among them:
// their costs are older than the other kinds.
func partsOf(r events.RunRef) []string {
	if r.Kind == "panel" {
		return []string{r.ID}
	}
	return []string{r.Kind, r.ID}
}

// CostTable is a sum of costs, also by model, run and day.
type CostTable struct {
	Total  projector.Total
	Models map[string]projector.Total
	Runs   map[events.RunRef]projector.Total // costs without a run are only in Total
	Days   map[string]projector.Total        // by day in UTC
}

// Costs are the costs of a session by its own events: all of them, and the costs of the records that are in effect.
type Costs struct {
	Spent    CostTable
	OnBranch CostTable
}

// ErrOverflow reports that a sum of tokens does not fit its type.
var ErrOverflow = errors.New("the sum of tokens exceeds 64 bits")

// Costs sums the costs of the session. If the session does not exist, the sums are 0.
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

// CostsOf sums the costs of a loaded session. Sums of money are exact. If a sum of tokens is too large, the error is
// ErrOverflow.
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
