// Package prices turns tokens into what they cost at list prices. A price is that of a
// model from a day on; tokens of a model that no table knows have no cost, which is not
// zero. Discounts, batches, caches that are kept for an hour and what a contract says are
// in no table: a figure of this package is computed, and is never to be added to one that
// somebody reported.
//
// The package is pure: it knows bytes, no files and no clock.
package prices

import (
	_ "embed"
	"fmt"
	"math/big"
	"strings"

	"github.com/tallylog/tally/events"
)

// Table is prices of models. The zero Table knows none.
type Table struct {
	layers [][]edition // the first that knows a model by a day counts
}

// edition is what some models cost from a day on.
type edition struct {
	models []string // names, in which * stands for any text
	from   string   // the first day, such as 2026-03-01; "": since ever
	upTo   int64    // tokens of the longest prompt that it holds for; 0: of any
	price  Price
}

// Price is what a million tokens of each class cost in USD, "" where that is not known.
type Price struct {
	Input, Output, CacheRead, CacheWrite events.Amount

	Source  string // where it was read
	Checked string // on which day, "" if that is not known
}

//go:embed builtin.json
var builtin []byte

// Builtin returns the table that the program comes with.
func Builtin() Table {
	t, err := Parse(builtin, "built in")
	if err != nil {
		panic(fmt.Sprintf("prices: the built-in table: %v", err)) // a test reads it
	}
	return t
}

// Before returns a table that asks this one first, and the other one about what this one
// does not know.
func (t Table) Before(other Table) Table {
	return Table{append(t.layers[:len(t.layers):len(t.layers)], other.layers...)}
}

// of returns the price of a model on a day, such as 2026-03-01, for a prompt of so many
// tokens, what is cached included. It is false if the table does not know it.
func (t Table) of(model, day string, prompt int64) (Price, bool) {
	for _, layer := range t.layers {
		if newest := newestOf(layer, model, day); newest != nil {
			return tierOf(layer, *newest, model, prompt)
		}
	}
	return Price{}, false
}

// newestOf returns an edition that holds for a model on a day: of those that name the
// model most closely the newest, in any of its tiers.
func newestOf(layer []edition, model, day string) *edition {
	var best *edition
	for i := range layer {
		e := &layer[i]
		n := e.closeness(model)
		if n < 0 || e.from > day {
			continue
		}
		if best == nil || n > best.closeness(model) || n == best.closeness(model) && e.from > best.from {
			best = e
		}
	}
	return best
}

// tierOf returns the price for a prompt among the editions that begin on the same day:
// that with the lowest bound which the prompt does not exceed.
func tierOf(layer []edition, newest edition, model string, prompt int64) (price Price, found bool) {
	var bound int64
	for _, e := range layer {
		if e.from != newest.from || e.closeness(model) != newest.closeness(model) || e.upTo != 0 && prompt > e.upTo {
			continue
		}
		if closer := e.upTo != 0 && (bound == 0 || e.upTo < bound); !found || closer {
			price, bound, found = e.price, e.upTo, true
		}
	}
	return price, found
}

// closeness is how many letters of a model's name the edition gives, -1 if it is for
// other models.
func (e *edition) closeness(model string) int {
	best := -1
	for _, pattern := range e.models {
		if matches(pattern, model) {
			best = max(best, len(pattern)-strings.Count(pattern, "*"))
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

// usd returns what tokens cost, exactly. It is false if there are none, or some of a class
// of which the price is not known.
func (p Price) usd(t events.Tokens) (events.Amount, bool) {
	if t.Total() == 0 {
		return "", false
	}
	sum := new(big.Rat)
	for _, class := range []struct {
		tokens int64
		price  events.Amount
	}{{t.Input, p.Input}, {t.Output, p.Output}, {t.CacheRead, p.CacheRead}, {t.CacheWrite, p.CacheWrite}} {
		if class.tokens == 0 {
			continue
		}
		price, ok := class.price.Rat()
		if !ok {
			return "", false
		}
		sum.Add(sum, price.Mul(price, big.NewRat(class.tokens, million)))
	}
	return events.AmountOf(sum), true
}

const million = 1_000_000

// USD returns what tokens of a model cost on a day, and at which price. It is false if
// that is not known.
func (t Table) USD(model, day string, tokens events.Tokens) (events.Amount, Price, bool) {
	p, ok := t.of(model, day, tokens.Total()-tokens.Output)
	if !ok {
		return "", p, false
	}
	usd, ok := p.usd(tokens)
	return usd, p, ok
}
