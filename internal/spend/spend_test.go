package spend

import (
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/internal/prices"
)

func priced(t *testing.T) prices.Table {
	t.Helper()
	table, err := prices.Parse([]byte(`{"prices": [{"models": ["m"], "input": "1", "output": "2"}]}`), "test")
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// Tokens that turns mention are not part of any cost, and computed amounts are not part of reported ones.
func TestSumsStayApart(t *testing.T) {
	table := priced(t)
	rapid.Check(t, func(t *rapid.T) {
		s := New(table)
		var usd, reported, computed, told big.Rat
		var tokens, toldTokens int64
		unknown, toldUnknown, costs, priced := 0, 0, 0, 0
		million := events.Tokens{Input: 1_000_000} // costs one USD if the model has a price
		for range rapid.IntRange(0, 20).Draw(t, "rows") {
			u := catalog.Usage{Day: "2026-01-01", Tokens: million,
				Model:  rapid.SampledFrom([]string{"m", "other"}).Draw(t, "model"),
				Source: rapid.SampledFrom([]string{"reported", "computed", catalog.InTurn}).Draw(t, "source")}
			if u.Source != catalog.InTurn {
				costs++
				u.USD = rapid.SampledFrom([]events.Amount{"", "0.1"}).Draw(t, "usd")
			}
			s.Add("key", u)
			one, tenth := big.NewRat(1, 1), big.NewRat(1, 10)
			switch isTurn := u.Source == catalog.InTurn; {
			case isTurn && u.Model == "m":
				told.Add(&told, one)
			case isTurn:
				toldUnknown++
			case u.USD == "" && u.Model == "m":
				computed.Add(&computed, one)
				priced++
			case u.USD == "":
				unknown++
			case u.Source == "computed":
				computed.Add(&computed, tenth)
				usd.Add(&usd, tenth)
			default:
				reported.Add(&reported, tenth)
				usd.Add(&usd, tenth)
			}
			if u.Source == catalog.InTurn {
				toldTokens += u.Tokens.Total()
			} else {
				tokens += u.Tokens.Total()
			}
		}
		got := s.Of("key")
		if got.USD != usdOf(&usd, costs, costs-unknown-priced) || got.Tokens.Total() != tokens || got.Unknown != unknown || !equals(got.Reported, &reported) || !equals(got.Computed, &computed) {
			t.Fatalf("spent %+v", got)
		}
		turns := s.ToldOf("key")
		if turns == nil {
			turns = new(Told)
		}
		if turns.Tokens.Total() != toldTokens || turns.Unknown != toldUnknown || !equals(turns.Computed, &told) {
			t.Fatalf("got in turns %+v", turns)
		}
	})
}

// usdOf returns the sum of the amounts in events, or "" if there are events and none has an amount.
func usdOf(usd *big.Rat, costs, said int) events.Amount {
	if costs > 0 && said == 0 {
		return ""
	}
	return events.AmountOf(usd)
}

// equals reports whether a sum equals an amount; an empty sum must be absent.
func equals(got events.Amount, want *big.Rat) bool {
	if want.Sign() == 0 {
		return got == ""
	}
	return got == events.AmountOf(want)
}

func TestWords(t *testing.T) {
	for usd, want := range map[events.Amount]string{"": "-", "0": "~0", "0.00005": "<0.0001", "0.0001": "~0.0001", "1.23456": "~1.2346", "1.5000": "~1.5", "100": "~100"} {
		if got := (Sum{Computed: usd}).ComputedText(); got != want {
			t.Errorf("%q is %q, want %q", usd, got, want)
		}
	}
	// B-14: if a part has no price, the rest is a lower bound, so it is rounded down.
	for usd, want := range map[events.Amount]string{"0": ">0", "0.00419999": ">0.0041", "0.0042": ">0.0042", "0.00005": ">0.00005", "1.5": ">1.5"} {
		if got := (Sum{Computed: usd, Partial: 1}).ComputedText(); got != want {
			t.Errorf("a part, %q, is %q, want %q", usd, got, want)
		}
	}
	for _, c := range []struct {
		sum   Sum
		want  string
		words string
	}{
		{Sum{}, "-", ""},
		{Sum{Reported: "0"}, "-", "0 USD, reported"},
		{Sum{Reported: "0.00018799999999999996"}, "0.000188", "0.00018799999999999996 USD, reported"},
		{Sum{Reported: "0.000000001"}, "<0.000001", "0.000000001 USD, reported"},
		{Sum{Reported: "0.5", Unknown: 1}, "0.5+?", "0.5 USD, reported; ? USD, unknown: 1 cost"},
		{Sum{Reported: "0.5", Computed: "0.25"}, "0.5+~0.25", "0.5 USD, reported; ~0.25 USD, computed"},
		{Sum{Reported: "0.5", Computed: "0.25", Unknown: 2}, "0.5+~0.25+?", "0.5 USD, reported; ~0.25 USD, computed; ? USD, unknown: 2 costs"},
		{Sum{Computed: "0.25", Partial: 1}, ">0.25", ">0.25 USD, computed: a part has no known price"},
		{Sum{Unknown: 3}, "?", "? USD, unknown: 3 costs"}, // B-16
	} {
		if got := c.sum.Text(); got != c.want {
			t.Errorf("%+v is %q, want %q", c.sum, got, c.want)
		}
		if got := strings.Join(c.sum.Words(), "; "); got != c.words {
			t.Errorf("%+v is %q in words, want %q", c.sum, got, c.words)
		}
	}
}

// B-16: each mark in an amount is explained once, and no other mark is.
func TestLegend(t *testing.T) { t.Run("B-16 marks are explained where they occur", marksExplained) }

func marksExplained(t *testing.T) {
	for _, c := range []struct {
		rows      [][]string
		elsewhere string
		want      string
	}{
		{[][]string{{"a?", "0.5", "who > what ~ why?"}}, "", ""},
		{[][]string{{"a", "~0.5"}, {"b", "?"}, {"c", "0.1+~0.2+?"}}, "", "~?"},
		{[][]string{{"a", ">0.5"}, {"b", "~1"}}, "~", ">"},
	} {
		var b strings.Builder
		Legend(&b, c.rows, c.elsewhere)
		marks := ""
		for line := range strings.Lines(b.String()) {
			marks += line[:1]
		}
		if marks != c.want {
			t.Errorf("%q: marks %q, want %q", c.rows, marks, c.want)
		}
	}
}

// B-14: a cost with a part of unknown price is a lower bound in every sum. B-15: an unknown cost is not zero.
func TestPartsAndUnknown(t *testing.T) { t.Run("B-15 what is not known is not zero", partsAndUnknown) }

func partsAndUnknown(t *testing.T) {
	s := New(priced(t))
	s.Add("part", catalog.Usage{Source: "reported", Day: "2026-01-01", Model: "m", Tokens: events.Tokens{Input: 1_000_000, CacheRead: 5}})
	s.Add("unknown", catalog.Usage{Source: "reported", Day: "2026-01-01", Model: "other", Tokens: events.Tokens{Input: 1}})
	s.Add("free", catalog.Usage{Source: "reported", USD: "0"})
	s.Add("told", catalog.Usage{Source: catalog.InTurn, Day: "2026-01-01", Model: "m", Tokens: events.Tokens{Output: 1, CacheRead: 5}})
	for key, want := range map[string]Sum{
		"part":    {Tokens: events.Tokens{Input: 1_000_000, CacheRead: 5}, Events: 1, Computed: "1", Partial: 1},
		"unknown": {Tokens: events.Tokens{Input: 1}, Events: 1, Unknown: 1},
		"free":    {USD: "0", Events: 1, Reported: "0"},
		"none":    {USD: "0"},
	} {
		if got := s.Of(key); got != want {
			t.Errorf("%s: %+v, want %+v", key, got, want)
		}
	}
	if got := s.ToldOf("told"); got.ComputedText() != ">0.000002" {
		t.Errorf("told: %+v", got)
	}
}

// Without a user's file the built-in prices apply. A file that cannot be read is an error.
func TestPricesOf(t *testing.T) {
	home := t.TempDir()
	env := func(name string) string { return map[string]string{"XDG_CONFIG_HOME": home}[name] }
	tokens := events.Tokens{Input: 1000}
	table, err := Prices(env)
	if c := table.Cost(prices.Usage{Model: "claude-opus-4-5", Day: "2026-01-01", Tokens: tokens}); err != nil || c.USD != "0.005" {
		t.Errorf("built in: got %+v, %v", c, err)
	}
	if err := os.MkdirAll(filepath.Join(home, "tally", "prices.json"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Prices(env); err == nil || !strings.Contains(err.Error(), "prices.json: ") {
		t.Errorf("a folder in the file's place: got %v", err)
	}
	if _, err := Prices(func(string) string { return "" }); err != nil {
		t.Errorf("without a home: got %v", err)
	}
}
