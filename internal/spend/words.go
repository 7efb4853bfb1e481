package spend

import (
	"cmp"
	"fmt"
	"io"
	"math/big"
	"slices"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/render/plain"
)

// ReportedText returns the reported part of a sum for a table, or a dash.
func (s Sum) ReportedText() string { return Dashed(s.Reported) }

// ComputedText returns the computed part of a sum for a table.
func (s Sum) ComputedText() string { return computed(s.Computed, s.Partial) }

// ComputedText returns the computed cost for a table.
func (t Told) ComputedText() string { return computed(t.Computed, t.Partial) }

// Text returns a sum for one cell of a table. An unknown part is marked. A dash means that nothing was spent.
func (s Sum) Text() string {
	var parts []string
	if r, ok := s.Reported.Rat(); ok && r.Sign() != 0 {
		parts = append(parts, Rounded(s.Reported))
	}
	if s.Computed != "" {
		parts = append(parts, s.ComputedText())
	}
	if s.Unknown > 0 {
		parts = append(parts, "?")
	}
	return cmp.Or(strings.Join(parts, "+"), "-")
}

// Words returns a sum as text, one element for each part.
func (s Sum) Words() (list []string) {
	if s.Reported != "" {
		list = append(list, cmp.Or(string(s.Reported), "0")+" USD, reported")
	}
	switch {
	case s.Computed == "":
	case s.Partial > 0:
		list = append(list, ">"+string(s.Computed)+" USD, computed: a part has no known price")
	default:
		list = append(list, "~"+string(s.Computed)+" USD, computed")
	}
	if s.Unknown > 0 {
		list = append(list, fmt.Sprintf("? USD, unknown: %s", plain.Count(s.Unknown, "cost")))
	}
	return list
}

// Dashed returns an amount for a table: a dash if it is unknown.
func Dashed(usd events.Amount) string { return cmp.Or(Rounded(usd), "-") }

// Rounded returns an amount with at most six decimals.
func Rounded(usd events.Amount) string {
	const decimals = 6
	_, behind, _ := strings.Cut(string(usd), ".")
	r, ok := usd.Rat()
	if !ok || len(behind) <= decimals {
		return string(usd)
	}
	if smallest := big.NewRat(1, 1_000_000); r.Sign() > 0 && r.Cmp(smallest) < 0 {
		return "<0.000001"
	}
	return strings.TrimRight(strings.TrimRight(r.FloatString(decimals), "0"), ".")
}

// computed returns a computed amount for a table, with four decimals. If a part has no known price, the amount begins
// with > and is rounded down.
func computed(usd events.Amount, partial int) string {
	r, ok := usd.Rat()
	switch {
	case !ok:
		return "-"
	case partial > 0:
		return ">" + floor(r)
	}
	if smallest := big.NewRat(1, 10_000); r.Sign() > 0 && r.Cmp(smallest) < 0 {
		return "<0.0001"
	}
	return "~" + trimmed(r.FloatString(4))
}

// floor returns an amount rounded down to four decimals. A smaller amount is not rounded.
func floor(r *big.Rat) string {
	scaled := new(big.Rat).Mul(r, big.NewRat(10_000, 1))
	whole := new(big.Int).Quo(scaled.Num(), scaled.Denom())
	if whole.Sign() == 0 {
		return string(events.AmountOf(r))
	}
	return trimmed(new(big.Rat).SetFrac(whole, big.NewInt(10_000)).FloatString(4))
}

func trimmed(decimal string) string {
	return strings.TrimSuffix(strings.TrimRight(decimal, "0"), ".")
}

// legend explains the marks in a table of costs.
var legend = []struct{ mark, meaning string }{
	{"~", "computed from tokens at list prices (tally cost --prices)"},
	{">", "at least: a part of it has no known price"},
	{"?", "unknown: no price is known"},
}

// Legend prints a line for each mark that occurs in the cells, except the marks in elsewhere, which are explained
// elsewhere.
func Legend(w io.Writer, rows [][]string, elsewhere string) {
	for _, l := range legend {
		if strings.Contains(elsewhere, l.mark) {
			continue
		}
		has := func(cell string) bool { return isAmount(cell) && strings.Contains(cell, l.mark) }
		if slices.ContainsFunc(rows, func(row []string) bool { return slices.ContainsFunc(row, has) }) {
			fmt.Fprintf(w, "%s %s\n", l.mark, l.meaning)
		}
	}
}

// isAmount reports whether a cell is an amount, as opposed to text with such a mark.
func isAmount(cell string) bool {
	cell = strings.TrimSpace(cell)
	return cell != "" && strings.Trim(cell, "0123456789.+~<>?") == ""
}

// SayPrices prints the sources of the prices, one line for each source.
func SayPrices(w io.Writer, used []Used) {
	models := make(map[string][]string)
	var sources []string
	for _, p := range used {
		source := p.Source
		if p.Checked != "" {
			source += ", " + p.Checked
		}
		if models[source] == nil {
			sources = append(sources, source)
		}
		if !slices.Contains(models[source], p.Model) {
			models[source] = append(models[source], p.Model)
		}
	}
	for _, source := range sources {
		fmt.Fprintf(w, "~ computed from tokens at the list price of %s: %s\n", plain.Printable(strings.Join(models[source], ", ")), plain.Printable(source))
	}
}
