// Package prices computes the cost of tokens at list prices. A price belongs to a model and is valid from a day on.
// Tokens of an unknown model have no cost, which differs from a cost of zero. Discounts and contract prices are in no
// table, so a computed cost must never be added to a reported one.
//
// The package is pure: it reads bytes, and uses neither files nor a clock.
package prices

import (
	_ "embed"
	"fmt"
	"math/big"
	"strings"
	"sync"

	"github.com/tallylog/tally/events"
)

// Table is a table of prices by model. The zero Table is empty.
type Table struct {
	layers [][]edition // the first layer with a price for a model and a day applies
}

// edition is a price with the models that it applies to.
type edition struct {
	models []string // names; * matches any text
	price  Price
}

// Price is a row of a table: USD for a million tokens of each class. "" means that a price is unknown.
type Price struct {
	Source       string                   `json:"source"`            // page or file that states the price
	Checked      string                   `json:"checked,omitempty"` // day on which the source was read; "" if unknown
	From         string                   `json:"from,omitempty"`    // first day of validity, such as 2026-03-01; "": always valid
	UpTo         int64                    `json:"upTo,omitempty"`    // tokens in the longest prompt at this price; 0: no limit
	Speed        string                   `json:"speed,omitempty"`   // "": standard
	Input        events.Amount            `json:"input"`
	Output       events.Amount            `json:"output"`
	CacheRead    events.Amount            `json:"cacheRead,omitempty"`
	CacheWrite   events.Amount            `json:"cacheWrite,omitempty"`   // kept for five minutes
	CacheWrite1h events.Amount            `json:"cacheWrite1h,omitempty"` // kept for an hour
	WebSearch    events.Amount            `json:"webSearch,omitempty"`    // of a thousand searches
	Regions      map[string]events.Amount `json:"regions,omitempty"`      // factor of all token prices, by region. nil: all regions cost the same; else other regions have no known price
	Tiers        map[string]events.Amount `json:"tiers,omitempty"`        // factor of all token prices, by tier of service; other tiers have no known price
}

//go:embed builtin.json
var builtin []byte

// Builtin returns the table that is compiled into the program.
var Builtin = sync.OnceValue(func() Table {
	t, err := Parse(builtin, "built in")
	if err != nil {
		panic(fmt.Sprintf("prices: the built-in table: %v", err)) // a test parses the table
	}
	return t
})

// Before returns a table in which entries of t take precedence over those of other.
func (t Table) Before(other Table) Table {
	return Table{append(t.layers[:len(t.layers):len(t.layers)], other.layers...)}
}

// Usage is a use of a model.
type Usage struct {
	Model  string
	Day    string // such as 2026-03-01
	Tokens events.Tokens
	Terms  events.Terms
}

// prompt returns the number of tokens in the prompt, cached tokens included.
func (u Usage) prompt() int64 { return u.Tokens.Total() - u.Tokens.Output }

// Cost is the cost of a usage at list prices.
type Cost struct {
	USD   events.Amount // sum of the parts with a price; "" if no part has one
	Part  bool          // other parts have no price, so the whole costs more than USD
	Price *Price        // price that was used; nil if the table has none for the usage
}

// Model is the part of a table that applies to one model.
type Model struct {
	name   modelName
	layers [][]edition
}

// Model returns the prices of a model, under any name that sellers use for it.
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

// Cost returns the cost of a usage.
func (t Table) Cost(u Usage) Cost { return t.Model(u.Model).Cost(u) }

// Cost returns the cost of a usage of the model.
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

// newestOf returns the edition for a model on a day, at a speed: among the editions with the closest name the newest,
// in any of its tiers.
func newestOf(layer []edition, n modelName, u Usage) *edition {
	var best *edition
	for i := range layer {
		e := &layer[i]
		closeness := e.closeness(n)
		if closeness < 0 || e.price.From > u.Day || e.price.Speed != u.Terms.Speed {
			continue
		}
		if best == nil || closeness > best.closeness(n) || closeness == best.closeness(n) && e.price.From > best.price.From {
			best = e
		}
	}
	return best
}

// tierOf returns the price for a prompt among the editions that begin on the same day: that with the lowest limit that
// the prompt does not exceed. It returns nil if the prompt exceeds all limits.
func tierOf(layer []edition, newest *edition, n modelName, prompt int64) *Price {
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

// closeness returns how many characters of a model's name the edition matches literally, or -1 if it is for other
// models.
func (e *edition) closeness(n modelName) int {
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

// matches reports whether a name matches a pattern, in which * matches any text.
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

// cost sums the cost of the parts of a usage, without rounding. named is the region in the model's name.
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

// usagePart is a part of a usage with its own price.
type usagePart struct {
	n      int64
	per    int64 // number of units that the price is for
	price  events.Amount
	tokens bool
}

func (p *Price) parts(u Usage) []usagePart {
	t, hour := u.Tokens, min(u.Terms.CacheHour, u.Tokens.CacheWrite)
	return []usagePart{
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

// factor returns the factor of token prices for the region and the tier of service. It returns false if the factor is
// unknown.
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
