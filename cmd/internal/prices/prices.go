// Package prices turns tokens into what they cost at list prices. A price is that of a
// model from a day on; tokens of a model that no table knows have no cost, which is not
// zero. Discounts and what a contract says are in no table: a figure of this package is
// computed, and is never to be added to one that somebody reported.
//
// The package is pure: it knows bytes, no files and no clock.
package prices

import (
	_ "embed"
	"fmt"
	"math/big"
	"strings"
	"sync"

	"github.com/tallylog/tally/events"
)

// Table is prices of models. The zero Table knows none.
type Table struct {
	layers [][]edition // the first that knows a model by a day counts
}

// edition is what some models cost from a day on.
type edition struct {
	models []string // names, in which * stands for any text
	price  Price
}

// Price is a row of a table: what a million tokens of each class cost in USD, "" where that
// is not known.
type Price struct {
	Source       string                   `json:"source"`                 // address of the page that states the price
	Checked      string                   `json:"checked,omitempty"`      // day on which somebody read that page; "" if unknown
	From         string                   `json:"from,omitempty"`         // first day of validity, such as 2026-03-01; "" if the price was never another
	UpTo         int64                    `json:"upTo,omitempty"`         // tokens in the longest prompt at this price; 0: no limit
	Speed        string                   `json:"speed,omitempty"`        // "": standard
	Input        events.Amount            `json:"input"`                  // of tokens that were not cached
	Output       events.Amount            `json:"output"`                 // includes reasoning
	CacheRead    events.Amount            `json:"cacheRead,omitempty"`    //
	CacheWrite   events.Amount            `json:"cacheWrite,omitempty"`   // kept for five minutes
	CacheWrite1h events.Amount            `json:"cacheWrite1h,omitempty"` // kept for an hour
	WebSearch    events.Amount            `json:"webSearch,omitempty"`    // of a thousand searches
	Regions      map[string]events.Amount `json:"regions,omitempty"`      // factor of all token prices, by region. nil: all regions cost the same; else other regions have no known price
	Tiers        map[string]events.Amount `json:"tiers,omitempty"`        // factor of all token prices, by tier of service; other tiers have no known price
}

//go:embed builtin.json
var builtin []byte

// Builtin returns the table that the program comes with.
var Builtin = sync.OnceValue(func() Table {
	t, err := Parse(builtin, "built in")
	if err != nil {
		panic(fmt.Sprintf("prices: the built-in table: %v", err)) // a test reads it
	}
	return t
})

// Before returns a table that asks this one first, and the other one about what this one
// does not know.
func (t Table) Before(other Table) Table {
	return Table{append(t.layers[:len(t.layers):len(t.layers)], other.layers...)}
}

// Usage is what a model was used for.
type Usage struct {
	Model  string
	Day    string // such as 2026-03-01
	Tokens events.Tokens
	Terms  events.Terms
}

// prompt is how many tokens were sent, with what is cached.
func (u Usage) prompt() int64 { return u.Tokens.Total() - u.Tokens.Output }

// Cost is what a usage costs at list prices.
type Cost struct {
	USD   events.Amount // of the parts that have a price; "": none has
	Part  bool          // other parts have no price, so that the whole costs more than USD
	Price *Price        // that was used, nil if the table has no row for the usage
}

// Model is the part of a table that is about one model.
type Model struct {
	name   name
	layers [][]edition
}

// Model returns the prices of a model, under any name under which it is sold.
func (t Table) Model(model string) Model {
	m := Model{name: nameOf(model)}
	for _, layer := range t.layers {
		var of []edition
		for _, e := range layer {
			if e.closeness(m.name) >= 0 {
				of = append(of, e)
			}
		}
		m.layers = append(m.layers, of)
	}
	return m
}

// Cost returns what a usage costs.
func (t Table) Cost(u Usage) Cost { return t.Model(u.Model).Cost(u) }

// Cost returns what a usage of the model costs.
func (m Model) Cost(u Usage) Cost {
	for _, layer := range m.layers {
		if newest := newestOf(layer, m.name, u); newest != nil {
			p := tierOf(layer, newest, m.name, u.prompt())
			if p == nil {
				break
			}
			return p.cost(u, m.name.region)
		}
	}
	return Cost{}
}

// newestOf returns an edition that holds for a model on a day, at a speed: of those that
// name the model most closely the newest, in any of its tiers.
func newestOf(layer []edition, n name, u Usage) *edition {
	var best *edition
	for i := range layer {
		e := &layer[i]
		close := e.closeness(n)
		if close < 0 || e.price.From > u.Day || e.price.Speed != u.Terms.Speed {
			continue
		}
		if best == nil || close > best.closeness(n) || close == best.closeness(n) && e.price.From > best.price.From {
			best = e
		}
	}
	return best
}

// tierOf returns the price for a prompt among the editions that begin on the same day:
// that with the lowest bound which the prompt does not exceed; nil if all are exceeded.
func tierOf(layer []edition, newest *edition, n name, prompt int64) *Price {
	var price *Price
	for i := range layer {
		p := &layer[i].price
		if p.From != newest.price.From || p.Speed != newest.price.Speed || layer[i].closeness(n) != newest.closeness(n) || p.UpTo != 0 && prompt > p.UpTo {
			continue
		}
		if price == nil || p.UpTo != 0 && (price.UpTo == 0 || p.UpTo < price.UpTo) {
			price = p
		}
	}
	return price
}

// closeness is how many letters of a model's name the edition gives, -1 if it is for
// other models.
func (e *edition) closeness(n name) int {
	best := -1
	for _, pattern := range e.models {
		for _, model := range n.spelled {
			if matches(pattern, model) {
				best = max(best, len(pattern)-strings.Count(pattern, "*"))
			}
		}
	}
	return best
}

// matches reports whether a name is like a pattern, in which * stands for any text.
func matches(pattern, name string) bool {
	first, rest, open := strings.Cut(pattern, "*")
	name, ok := strings.CutPrefix(name, first)
	if !ok || !open {
		return ok && name == ""
	}
	parts := strings.Split(rest, "*")
	last := parts[len(parts)-1]
	for _, part := range parts[:len(parts)-1] {
		if _, name, ok = strings.Cut(name, part); !ok {
			return false
		}
	}
	return strings.HasSuffix(name, last)
}

// cost sums the parts of a usage, exactly. named is the region that the model's name states.
func (p *Price) cost(u Usage, named string) Cost {
	c := Cost{Price: p}
	factor, ok := p.factor(u.Terms, named)
	sum, known := new(big.Rat), false
	for _, part := range p.parts(u) {
		price, priced := part.price.Rat()
		switch {
		case part.n == 0:
			continue
		case !priced || part.tokens && !ok:
			c.Part = true
			continue
		case part.tokens:
			price.Mul(price, factor)
		}
		sum.Add(sum, price.Mul(price, big.NewRat(part.n, part.per)))
		known = true
	}
	if !known {
		return Cost{Price: p}
	}
	c.USD = events.AmountOf(sum)
	return c
}

// part is a part of a usage that has a price of its own.
type part struct {
	n      int64
	per    int64 // the price is of so many
	price  events.Amount
	tokens bool
}

func (p *Price) parts(u Usage) []part {
	t, hour := u.Tokens, min(u.Terms.CacheHour, u.Tokens.CacheWrite)
	return []part{
		{t.Input, million, p.Input, true},
		{t.Output, million, p.Output, true},
		{t.CacheRead, million, p.CacheRead, true},
		{t.CacheWrite - hour, million, p.CacheWrite, true},
		{hour, million, p.CacheWrite1h, true},
		{u.Terms.Searches, thousand, p.WebSearch, false},
	}
}

const (
	thousand = 1_000
	million  = 1_000_000
)

// factor is by how much the region and the tier of service change the price of tokens. It
// is false if that is not known.
func (p *Price) factor(t events.Terms, named string) (*big.Rat, bool) {
	factor, region := big.NewRat(1, 1), t.Region
	if region == "" {
		region = named
	}
	if region != "" && p.Regions != nil {
		r, ok := p.Regions[region].Rat()
		if !ok {
			return nil, false
		}
		factor.Mul(factor, r)
	}
	if t.Tier != "" {
		r, ok := p.Tiers[t.Tier].Rat()
		if !ok {
			return nil, false
		}
		factor.Mul(factor, r)
	}
	return factor, true
}
