// Package spend adds up costs: reported costs, and costs of tokens at list prices. It also has the words in which
// commands print them.
package spend

import (
	"cmp"
	"errors"
	"io/fs"
	"math/big"
	"os"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/prices"
	"github.com/tallylog/tally/projector"
)

// Prices returns the table of prices: the user's file takes precedence over the built-in prices. getenv is os.Getenv
// except in tests.
func Prices(getenv func(string) string) (prices.Table, error) {
	path := config.PricesFile(getenv)
	if path == "" {
		return prices.Builtin(), nil
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return prices.Builtin(), nil
	}
	if err != nil {
		return prices.Table{}, &config.Error{File: path, Reason: err.Error()}
	}
	own, err := prices.Parse(data, path)
	if wrong, ok := errors.AsType[*prices.Error](err); ok {
		return prices.Table{}, &config.Error{File: path, Line: wrong.Line, Field: wrong.Field, Reason: wrong.Reason}
	}
	return own.Before(prices.Builtin()), err
}

// Sum is a sum of costs, as commands print it with -o json.
type Sum struct {
	USD      events.Amount `json:"usd,omitempty"` // sum of amounts in events, reported or computed; absent if no event has an amount
	Tokens   events.Tokens `json:"tokens"`
	Events   int           `json:"events"`
	Reported events.Amount `json:"reported,omitempty"` // USD reported by the maker; absent if nothing was reported
	Computed events.Amount `json:"computed,omitempty"` // USD computed from tokens, by the writer of the event or else at list prices; absent if nothing was computed
	Partial  int           `json:"partial,omitempty"`  // events of which Computed has only a part, because another part has no known price
	Unknown  int           `json:"unknown,omitempty"`  // events of unknown cost
}

// Known returns the known amount: reported plus computed.
func (s Sum) Known() *big.Rat {
	sum := new(big.Rat)
	for _, amount := range []events.Amount{s.Reported, s.Computed} {
		if r, ok := amount.Rat(); ok {
			sum.Add(sum, r)
		}
	}
	return sum
}

// Told is a sum of tokens that turns mention and no cost event does.
type Told struct {
	Responses int           `json:"responses"`
	Tokens    events.Tokens `json:"tokens"`
	Computed  events.Amount `json:"computed,omitempty"` // USD at list prices; absent if no price is known
	Partial   int           `json:"partial,omitempty"`  // responses of which Computed has only a part
	Unknown   int           `json:"unknown,omitempty"`  // responses without a known price
}

// Sums adds up costs by key, and separately the tokens that turns mention.
type Sums struct {
	table              prices.Table
	models             map[string]prices.Model
	costs              projector.Totals[string]
	reported, computed projector.Totals[string]
	said               map[string]int // costs with an amount
	partial, unknown   map[string]int
	told, toldComputed projector.Totals[string]
	toldPartial        map[string]int
	toldUnknown        map[string]int
	used               map[usedPrice]bool
}

// usedPrice is a price, and a model that it was used for.
type usedPrice struct {
	model string
	row   *prices.Price
}

// New returns empty sums, which compute at the prices of a table.
func New(t prices.Table) *Sums {
	return &Sums{table: t, models: make(map[string]prices.Model), said: make(map[string]int), partial: make(map[string]int), unknown: make(map[string]int),
		toldPartial: make(map[string]int), toldUnknown: make(map[string]int), used: make(map[usedPrice]bool)}
}

// Keys lists the keys that have costs.
func (s *Sums) Keys() []string { return s.costs.Keys() }

// Add adds a cost, or tokens that a turn mentions, under a key.
func (s *Sums) Add(key string, u catalog.Usage) {
	if u.Source == catalog.InTurn {
		s.told.AddTotal(key, projector.Total{Tokens: u.Tokens, Events: 1})
		s.compute(key, u, &s.toldComputed, s.toldPartial, s.toldUnknown)
		return
	}
	s.costs.AddTotal(key, projector.Total{USD: u.USD, Tokens: u.Tokens, Events: 1})
	if u.USD != "" {
		s.said[key]++
	}
	switch {
	case u.USD == "":
		s.compute(key, u, &s.computed, s.partial, s.unknown)
	case u.Source == "computed":
		s.computed.AddTotal(key, projector.Total{USD: u.USD, Events: 1})
	default:
		s.reported.AddTotal(key, projector.Total{USD: u.USD, Events: 1})
	}
}

// AddCost adds a cost of a session under a key.
func (s *Sums) AddCost(key string, c projector.Cost) {
	s.Add(key, catalog.Usage{Source: c.Source, Day: c.Day(), Model: c.Model, USD: c.USD, Tokens: c.Tokens, Terms: c.Terms})
}

// compute adds the cost of tokens at list prices, or counts it as unknown.
func (s *Sums) compute(key string, u catalog.Usage, into *projector.Totals[string], partial, unknown map[string]int) {
	m, ok := s.models[u.Model]
	if !ok {
		m = s.table.Model(u.Model)
		s.models[u.Model] = m
	}
	c := m.Cost(prices.Usage{Model: u.Model, Day: u.Day, Tokens: u.Tokens, Terms: u.Terms})
	if c.USD == "" {
		unknown[key]++
		return
	}
	if c.Part {
		partial[key]++
	}
	into.AddTotal(key, projector.Total{USD: c.USD, Events: 1})
	s.used[usedPrice{u.Model, c.Price}] = true
}

// Of returns the sum of the costs under a key.
func (s *Sums) Of(key string) Sum {
	t := s.costs.Of(key)
	sum := Sum{USD: t.USD, Tokens: t.Tokens, Events: t.Events, Reported: known(s.reported.Of(key)), Computed: known(s.computed.Of(key)),
		Partial: s.partial[key], Unknown: s.unknown[key]}
	if t.Events > 0 && s.said[key] == 0 {
		sum.USD = "" // an unknown cost must not look like no cost
	}
	return sum
}

// ToldOf returns the sum of tokens that turns mention under a key, or nil.
func (s *Sums) ToldOf(key string) *Told {
	t := s.told.Of(key)
	if t.Events == 0 {
		return nil
	}
	return &Told{t.Events, t.Tokens, known(s.toldComputed.Of(key)), s.toldPartial[key], s.toldUnknown[key]}
}

// known returns the amount of a sum, or "" if the sum is empty.
func known(t projector.Total) events.Amount {
	if t.Events == 0 {
		return ""
	}
	return t.USD
}

// Used is a price that was used, with the model.
type Used struct {
	Model string `json:"model"`
	prices.Price
}

// Prices lists the prices that were used, by model.
func (s *Sums) Prices() []Used {
	var list []Used
	for u := range s.used {
		list = append(list, Used{u.model, *u.row})
	}
	slices.SortFunc(list, func(a, b Used) int {
		return cmp.Or(cmp.Compare(a.Model, b.Model), cmp.Compare(a.From, b.From), cmp.Compare(a.Speed, b.Speed), cmp.Compare(a.UpTo, b.UpTo), cmp.Compare(a.Source, b.Source))
	})
	return list
}
