// Package spend sums costs: what makers reported, and what tokens cost at list prices. It
// has the words in which every command says so.
package spend

import (
	"cmp"
	"errors"
	"io/fs"
	"math/big"
	"os"
	"slices"

	"github.com/tallylog/tally/cmd/internal/prices"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/projector"
)

// Prices returns what models cost: what the user's file says, and for other models what
// the program knows. getenv is os.Getenv but for tests.
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

// Sum is a sum of costs as it is printed with -o json.
type Sum struct {
	USD      events.Amount `json:"usd,omitempty"` // what the events say, whoever computed it; absent: none says an amount
	Tokens   events.Tokens `json:"tokens"`
	Events   int           `json:"events"`
	Reported events.Amount `json:"reported,omitempty"` // USD that a maker reported; absent: none did
	Computed events.Amount `json:"computed,omitempty"` // USD from tokens: by who wrote the event, else at list prices; absent: none
	Partial  int           `json:"partial,omitempty"`  // events of which computed has a part only, as another part has no known price
	Unknown  int           `json:"unknown,omitempty"`  // events that cost nobody knows what
}

// Known is all that is known to be spent: what was reported and what was computed.
func (s Sum) Known() *big.Rat {
	sum := new(big.Rat)
	for _, amount := range []events.Amount{s.Reported, s.Computed} {
		if r, ok := amount.Rat(); ok {
			sum.Add(sum, r)
		}
	}
	return sum
}

// Told is a sum of what turns say that responses took.
type Told struct {
	Responses int           `json:"responses"`
	Tokens    events.Tokens `json:"tokens"`
	Computed  events.Amount `json:"computed,omitempty"` // USD at list prices; absent: none is known
	Partial   int           `json:"partial,omitempty"`  // responses of which computed has a part only
	Unknown   int           `json:"unknown,omitempty"`  // responses without a known price
}

// Sums adds up costs, and apart from them what turns tell, by keys.
type Sums struct {
	table              prices.Table
	models             map[string]prices.Model
	costs              projector.Totals[string]
	reported, computed projector.Totals[string]
	said               map[string]int // costs that say an amount
	partial, unknown   map[string]int
	told, toldComputed projector.Totals[string]
	toldPartial        map[string]int
	toldUnknown        map[string]int
	used               map[used]bool
}

// used is a row of a table of prices, and a model that it was used for.
type used struct {
	model string
	row   *prices.Price
}

// New returns sums that compute at the prices of a table.
func New(t prices.Table) *Sums {
	return &Sums{table: t, models: make(map[string]prices.Model), said: make(map[string]int), partial: make(map[string]int), unknown: make(map[string]int),
		toldPartial: make(map[string]int), toldUnknown: make(map[string]int), used: make(map[used]bool)}
}

// Keys lists the keys under which costs were added.
func (s *Sums) Keys() []string { return s.costs.Keys() }

// Add counts a cost, or what a turn tells, under a key.
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

// AddCost counts a cost of a session under a key.
func (s *Sums) AddCost(key string, c projector.Cost) {
	s.Add(key, catalog.Usage{Source: c.Source, Day: c.Day(), Model: c.Model, USD: c.USD, Tokens: c.Tokens, Terms: c.Terms})
}

// compute counts what tokens cost at list prices, or that nobody knows.
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
	s.used[used{u.Model, c.Price}] = true
}

// Of is the sum of the costs under a key.
func (s *Sums) Of(key string) Sum {
	t := s.costs.Of(key)
	sum := Sum{USD: t.USD, Tokens: t.Tokens, Events: t.Events, Reported: known(s.reported.Of(key)), Computed: known(s.computed.Of(key)),
		Partial: s.partial[key], Unknown: s.unknown[key]}
	if t.Events > 0 && s.said[key] == 0 {
		sum.USD = "" // unknown does not look free
	}
	return sum
}

// ToldOf is the sum of what turns tell under a key, nil if they tell nothing.
func (s *Sums) ToldOf(key string) *Told {
	t := s.told.Of(key)
	if t.Events == 0 {
		return nil
	}
	return &Told{t.Events, t.Tokens, known(s.toldComputed.Of(key)), s.toldPartial[key], s.toldUnknown[key]}
}

// known is the amount of a sum, "" if nothing is in it.
func known(t projector.Total) events.Amount {
	if t.Events == 0 {
		return ""
	}
	return t.USD
}

// Used is a row of the table of prices with which something was computed.
type Used struct {
	Model string `json:"model"`
	prices.Price
}

// Prices lists the rows that were used, by model.
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
