package errata

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// Cost is money and tokens spent on a model.
type Cost struct {
	Model   string
	USD     events.Amount  // exact; see USD for one that is a float
	Tokens  *events.Tokens // in disjoint classes; nil: not known
	Run     string         // id of the panel run; default: none
	Part    string         // which of the model's costs in the run: a step, an attempt
	Purpose string         // run, compaction, judge or other; default: run
	Source  string         // reported or computed; default: reported
	At      time.Time      // when; default: now
}

// USD gives the amount that a float is written as: 0.1 is exactly 0.1. What is
// negative, infinite or no number is an *events.InvalidError.
func USD(v float64) (events.Amount, error) {
	if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
		return "", &events.InvalidError{Field: "usd", Reason: fmt.Sprintf("%v is no amount of money", v)}
	}
	text := strconv.FormatFloat(math.Abs(v), 'f', -1, 64)
	if _, ok := events.Amount(text).Rat(); !ok {
		return "", &events.InvalidError{Field: "usd", Reason: fmt.Sprintf("%v has more digits than an amount can have", v)}
	}
	return events.Amount(text), nil
}

// AccumulateCost records a cost. The same model, run, part and purpose again is
// the same cost, so that what was resumed or is repeated counts once; other
// figures for them are an *events.InvalidError. Without a run every call counts.
func (s *Session) AccumulateCost(ctx context.Context, c Cost) error {
	p := &events.CostAccrued{Model: c.Model, USD: c.USD, Tokens: c.Tokens, Purpose: c.Purpose, Source: c.Source}
	if p.Purpose == "" {
		p.Purpose = "run"
	}
	if p.Source == "" {
		p.Source = "reported"
	}
	if c.Run != "" {
		p.Run = &events.RunRef{Kind: runKind, ID: c.Run}
	}
	e, err := events.New(s.Store().Source(), s.Subject(), p)
	if err != nil {
		return err
	}
	e.Time = c.At
	if c.Run != "" {
		e.Source = costSource
		e.ID = events.DerivedID("cost", s.ID(), c.Run, c.Model, p.Purpose, c.Part)
	}
	if err := s.ensure(ctx); err != nil {
		return err
	}
	_, err = s.put(ctx, log.Any, e)
	return err
}

// costSource is the source of costs whose identity follows from their run.
const costSource = "urn:tally:cost"

// CostTable is a sum of costs and its parts.
type CostTable struct {
	Total  projector.Total            `json:"total"`
	Models map[string]projector.Total `json:"models"`
	Runs   map[string]projector.Total `json:"runs"` // by id of the panel's run; what has none is in Total
	Days   map[string]projector.Total `json:"days"` // by day in UTC
}

// Costs are the costs of a session: what was spent, and the part of it that
// led to where the session is now.
type Costs struct {
	Spent    CostTable `json:"spent"`
	OnBranch CostTable `json:"onBranch"`
}

// ErrOverflow says that a sum of tokens does not fit a number.
var ErrOverflow = errors.New("the tokens are more than can be counted")

// Costs sums the costs of the session.
func (s *Session) Costs(ctx context.Context) (Costs, error) {
	head, err := s.head(ctx)
	if err != nil {
		return Costs{}, err
	}
	return CostsOf(head)
}

// CostsOf sums the costs of a session that is loaded already. Sums of money
// are exact; one of tokens that is too large is ErrOverflow.
func CostsOf(head *projector.Session) (Costs, error) {
	var spent, branch costSums
	for _, c := range head.Ledger.Costs {
		err := spent.add(c)
		if err == nil && head.History.IsLive(c.Offset) {
			err = branch.add(c)
		}
		if err != nil {
			return Costs{}, fmt.Errorf("%s: the cost at %v: %w", head.Subject, c.Offset, err)
		}
	}
	return Costs{spent.table(), branch.table()}, nil
}

// costSums are sums by several keys at once.
type costSums struct {
	all                projector.Totals[struct{}]
	models, runs, days projector.Totals[string]
	tokens             events.Tokens
}

func (t *costSums) add(c projector.Cost) error {
	sum := t.tokens.Add(c.Tokens)
	if min(sum.Input, sum.Output, sum.Reasoning, sum.CacheRead, sum.CacheWrite, sum.Total()) < 0 {
		return ErrOverflow
	}
	t.tokens = sum
	t.all.Add(struct{}{}, c)
	t.models.Add(c.Model, c)
	if c.Run != nil && c.Run.Kind == runKind {
		t.runs.Add(c.Run.ID, c)
	}
	if at, ok := c.Time.Time(); ok {
		t.days.Add(at.UTC().Format(time.DateOnly), c)
	}
	return nil
}

func (t *costSums) table() CostTable {
	return CostTable{t.all.Of(struct{}{}), totals(&t.models), totals(&t.runs), totals(&t.days)}
}

func totals(t *projector.Totals[string]) map[string]projector.Total {
	list := make(map[string]projector.Total)
	for _, key := range t.Keys() {
		list[key] = t.Of(key)
	}
	return list
}

// CostPerModel gives what was spent on each model, rewound or not.
func (s *Session) CostPerModel(ctx context.Context) (map[string]events.Amount, error) {
	costs, err := s.Costs(ctx)
	if err != nil {
		return nil, err
	}
	list := make(map[string]events.Amount)
	for model, t := range costs.Spent.Models {
		list[model] = t.USD
	}
	return list, nil
}

// TotalCost gives what was spent in the session, rewound or not.
func (s *Session) TotalCost(ctx context.Context) (events.Amount, error) {
	costs, err := s.Costs(ctx)
	return costs.Spent.Total.USD, err
}
