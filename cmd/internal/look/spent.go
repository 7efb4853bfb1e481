package look

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/big"
	"os"
	"slices"
	"strings"

	"github.com/tallylog/tally/cmd/internal/app"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/plain"
	"github.com/tallylog/tally/internal/prices"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/projector/catalog"
)

// pricesOf returns what models cost: what the user's file says, and for other models what
// the program knows.
func pricesOf(getenv func(string) string) (prices.Table, error) {
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

// spentSum is a sum of costs as it is printed with -o json.
type spentSum struct {
	projector.Total               // usd is what the events say, whoever computed it
	Reported        events.Amount `json:"reported,omitempty"` // USD that a maker reported; absent: none did
	Computed        events.Amount `json:"computed,omitempty"` // USD from tokens: by who wrote the event, else at list prices; absent: none
	Unknown         int           `json:"unknown,omitempty"`  // events that cost nobody knows what
}

// toldSum is a sum of what turns say that responses took.
type toldSum struct {
	Responses int           `json:"responses"`
	Tokens    events.Tokens `json:"tokens"`
	Computed  events.Amount `json:"computed,omitempty"` // USD at list prices; absent: none is known
	Unknown   int           `json:"unknown,omitempty"`  // responses without a known price
}

// usedPrice is a price with which something was computed.
type usedPrice struct {
	Model   string `json:"model"`
	Source  string `json:"source"`
	Checked string `json:"checked,omitempty"` // on which day
}

// sums adds up costs, and apart from them what turns tell, by keys.
type sums struct {
	table              prices.Table
	costs              projector.Totals[string]
	reported, computed projector.Totals[string]
	unknown            map[string]int
	told, toldComputed projector.Totals[string]
	toldUnknown        map[string]int
	used               map[usedPrice]bool
}

func newSums(t prices.Table) *sums {
	return &sums{table: t, unknown: make(map[string]int), toldUnknown: make(map[string]int), used: make(map[usedPrice]bool)}
}

// add counts a cost, or what a turn tells, under a key.
func (s *sums) add(key string, u catalog.Usage) {
	if u.Source == catalog.InTurn {
		s.told.AddTotal(key, projector.Total{Tokens: u.Tokens, Events: 1})
		s.compute(key, u, &s.toldComputed, s.toldUnknown)
		return
	}
	s.costs.AddTotal(key, projector.Total{USD: u.USD, Tokens: u.Tokens, Events: 1})
	switch {
	case u.USD == "":
		s.compute(key, u, &s.computed, s.unknown)
	case u.Source == "computed":
		s.computed.AddTotal(key, projector.Total{USD: u.USD, Events: 1})
	default:
		s.reported.AddTotal(key, projector.Total{USD: u.USD, Events: 1})
	}
}

// compute counts what tokens cost at list prices, or that nobody knows.
func (s *sums) compute(key string, u catalog.Usage, into *projector.Totals[string], unknown map[string]int) {
	usd, price, ok := s.table.USD(u.Model, u.Day, u.Tokens)
	if !ok {
		unknown[key]++
		return
	}
	into.AddTotal(key, projector.Total{USD: usd, Events: 1})
	s.used[usedPrice{u.Model, price.Source, price.Checked}] = true
}

// spent is the sum of the costs under a key.
func (s *sums) spent(key string) spentSum {
	return spentSum{s.costs.Of(key), known(s.reported.Of(key)), known(s.computed.Of(key)), s.unknown[key]}
}

// inTurns is the sum of what turns tell under a key, nil if they tell nothing.
func (s *sums) inTurns(key string) *toldSum {
	t := s.told.Of(key)
	if t.Events == 0 {
		return nil
	}
	return &toldSum{t.Events, t.Tokens, known(s.toldComputed.Of(key)), s.toldUnknown[key]}
}

// known is the amount of a sum, "" if nothing is in it.
func known(t projector.Total) events.Amount {
	if t.Events == 0 {
		return ""
	}
	return t.USD
}

// prices lists the prices that were used, by model.
func (s *sums) prices() []usedPrice {
	return slices.SortedFunc(maps.Keys(s.used), func(a, b usedPrice) int {
		return cmp.Or(cmp.Compare(a.Model, b.Model), cmp.Compare(a.Source, b.Source), cmp.Compare(a.Checked, b.Checked))
	})
}

// sayPrices says where the prices are from, a line for each place.
func sayPrices(a *app.App, used []usedPrice) {
	models := make(map[string][]string)
	var places []string
	for _, p := range used {
		place := p.Source
		if p.Checked != "" {
			place += ", " + p.Checked
		}
		if models[place] == nil {
			places = append(places, place)
		}
		if !slices.Contains(models[place], p.Model) {
			models[place] = append(models[place], p.Model)
		}
	}
	for _, place := range places {
		fmt.Fprintf(a.Err, "~ computed from tokens at the list price of %s: %s\n", plain.Printable(strings.Join(models[place], ", ")), plain.Printable(place))
	}
}

// dashed is an amount in a table: a dash where it is not known.
func dashed(usd events.Amount) string { return cmp.Or(rounded(usd), "-") }

// rounded is an amount to six places, or as it is if it has no more.
func rounded(usd events.Amount) string {
	const places = 6
	_, behind, _ := strings.Cut(string(usd), ".")
	r, ok := usd.Rat()
	if !ok || len(behind) <= places {
		return string(usd)
	}
	if least := big.NewRat(1, 1_000_000); r.Sign() > 0 && r.Cmp(least) < 0 {
		return "<0.000001"
	}
	return strings.TrimRight(strings.TrimRight(r.FloatString(places), "0"), ".")
}

// about is a computed amount in a table, to four places.
func about(usd events.Amount) string {
	r, ok := usd.Rat()
	if !ok {
		return "-"
	}
	least := big.NewRat(1, 10_000)
	if r.Sign() > 0 && r.Cmp(least) < 0 {
		return "<0.0001"
	}
	text := strings.TrimRight(r.FloatString(4), "0")
	return "~" + strings.TrimSuffix(text, ".")
}
