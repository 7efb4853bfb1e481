package errata

import (
	"context"
	"fmt"
	"math"
	"strconv"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/stores/errata/internal/panel"
)

// USD returns the amount that a float's shortest decimal form denotes: 0.1 is exactly 0.1. If v is negative, infinite
// or not a number, the error is an *events.InvalidError.
func USD(v float64) (events.Amount, error) {
	if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
		return "", &events.InvalidError{Field: "usd", Reason: fmt.Sprintf("%v is not an amount of money", v)}
	}
	text := strconv.FormatFloat(math.Abs(v), 'f', -1, 64)
	if _, ok := events.Amount(text).Rat(); !ok {
		return "", &events.InvalidError{Field: "usd", Reason: fmt.Sprintf("%v has more digits than an amount can have", v)}
	}
	return events.Amount(text), nil
}

// AccumulateCost records a cost, as [tally.Session.AddCost] does. The default kind of its run is that of a panel.
func (s *Session) AccumulateCost(ctx context.Context, c tally.Cost) error {
	if c.Run.ID != "" && c.Run.Kind == "" {
		c.Run.Kind = panel.Kind
	}
	if err := s.ensure(ctx); err != nil {
		return err
	}
	_, err := s.AddCost(ctx, c)
	return err
}

// CostPerModel returns the costs of each model, including those of rewound runs.
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

// TotalCost returns the costs of the session, including those of rewound runs.
func (s *Session) TotalCost(ctx context.Context) (events.Amount, error) {
	costs, err := s.Costs(ctx)
	return costs.Spent.Total.USD, err
}
