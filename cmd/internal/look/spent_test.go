package look

import (
	"io"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallylog/tally/cmd/internal/app"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/cli"
	"github.com/tallylog/tally/internal/prices"
	"github.com/tallylog/tally/projector/catalog"
)

func priced(t *testing.T) prices.Table {
	t.Helper()
	table, err := prices.Parse([]byte(`{"prices": [{"models": ["m"], "input": "1", "output": "2"}]}`), "test")
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// What turns tell is in no sum of costs, and what is computed in none of what was reported.
func TestSumsStayApart(t *testing.T) {
	table := priced(t)
	rapid.Check(t, func(t *rapid.T) {
		s := newSums(table)
		var usd, reported, computed, told big.Rat
		var tokens, toldTokens int64
		unknown, toldUnknown := 0, 0
		million := events.Tokens{Input: 1_000_000} // one USD, if the model has a price
		for range rapid.IntRange(0, 20).Draw(t, "rows") {
			u := catalog.Usage{Day: "2026-01-01", Tokens: million,
				Model:  rapid.SampledFrom([]string{"m", "other"}).Draw(t, "model"),
				Source: rapid.SampledFrom([]string{"reported", "computed", catalog.InTurn}).Draw(t, "source")}
			if u.Source != catalog.InTurn {
				u.USD = rapid.SampledFrom([]events.Amount{"", "0.1"}).Draw(t, "usd")
			}
			s.add("key", u)
			one, tenth := big.NewRat(1, 1), big.NewRat(1, 10)
			switch isTurn := u.Source == catalog.InTurn; {
			case isTurn && u.Model == "m":
				told.Add(&told, one)
			case isTurn:
				toldUnknown++
			case u.USD == "" && u.Model == "m":
				computed.Add(&computed, one)
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
		got := s.spent("key")
		if got.USD != events.AmountOf(&usd) || got.Tokens.Total() != tokens || got.Unknown != unknown || !isAmount(got.Reported, &reported) || !isAmount(got.Computed, &computed) {
			t.Fatalf("spent %+v", got)
		}
		turns := s.inTurns("key")
		if turns == nil {
			turns = new(toldSum)
		}
		if turns.Tokens.Total() != toldTokens || turns.Unknown != toldUnknown || !isAmount(turns.Computed, &told) {
			t.Fatalf("in turns %+v", turns)
		}
	})
}

// isAmount reports whether a sum is that amount; one of nothing is not said at all.
func isAmount(got events.Amount, want *big.Rat) bool {
	if want.Sign() == 0 {
		return got == ""
	}
	return got == events.AmountOf(want)
}

// Tokens in turns stand in a line of their own, in the table as in JSON.
func TestInTurns(t *testing.T) {
	table := priced(t)
	tab := tab{by: "model", groups: newSums(table), whole: newSums(table)}
	tab.add(catalog.Usage{Source: "reported", Day: "2026-01-01", Model: "m", USD: "0.25", Tokens: events.Tokens{Input: 10}})
	tab.add(catalog.Usage{Source: catalog.InTurn, Day: "2026-01-01", Model: "m", Tokens: events.Tokens{Input: 100, Output: 50}})
	tab.add(catalog.Usage{Source: catalog.InTurn, Day: "2026-01-01", Model: "other", Tokens: events.Tokens{Output: 3}})
	got := strings.Join(costTable(&app.App{Out: io.Discard, Color: cli.ColorNever}, tab.costs(), true).Lines(100), "\n")
	want := `MODEL      USD     ~USD  INPUT  OUTPUT  CACHE READ  CACHE WRITE  UNKNOWN
m         0.25        -     10       0           0            0        0
spent     0.25        -     10       0           0            0        0
in turns     -  ~0.0002    100      53           0            0        1`
	if got != want {
		t.Errorf("\n%s\nwant\n%s", got, want)
	}
}

func TestAbout(t *testing.T) {
	for usd, want := range map[events.Amount]string{"": "-", "0": "~0", "0.00005": "<0.0001", "0.0001": "~0.0001", "1.23456": "~1.2346", "1.5000": "~1.5", "100": "~100"} {
		if got := about(usd); got != want {
			t.Errorf("%q is %q, want %q", usd, got, want)
		}
	}
}

func TestUSD(t *testing.T) {
	for amount, want := range map[events.Amount]string{"0": "-", "0.00": "-", "": "-", "0.5": "0.5", "0.00018799999999999996": "0.000188", "0.000000001": "<0.000001"} {
		if got := (listPrice{}).cell(amount); got != want {
			t.Errorf("%q is %q, want %q", amount, got, want)
		}
	}
	for p, want := range map[listPrice]string{{unknown: 1}: "0.5+?", {computed: "0.25"}: "0.5+~0.25", {computed: "0.25", unknown: 2}: "0.5+~0.25+?"} {
		if got := p.cell("0.5"); got != want {
			t.Errorf("%+v is %q, want %q", p, got, want)
		}
	}
	if got := (listPrice{unknown: 3}).cell("0"); got != "-" {
		t.Errorf("what nobody knows is %q", got)
	}
}

func TestShort(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1.00k", 9994: "9.99k", 9996: "10.0k", 99_949: "99.9k", 99_960: "100k", 999_499: "999k", 999_501: "1.00M", 1_230_000: "1.23M", 45_600_000_000: "45.6G", 7_000_000_000_000: "7T"} {
		if got := short(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}

// Without a file of the user's the built-in prices count; one that cannot be read is an error.
func TestPricesOf(t *testing.T) {
	home := t.TempDir()
	env := func(name string) string { return map[string]string{"XDG_CONFIG_HOME": home}[name] }
	tokens := events.Tokens{Input: 1000}
	table, err := pricesOf(env)
	if usd, _, ok := table.USD("claude-opus-4-5", "2026-01-01", tokens); err != nil || !ok || usd != "0.005" {
		t.Errorf("built in: %s %v %v", usd, ok, err)
	}
	if err := os.MkdirAll(filepath.Join(home, "tally", "prices.json"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := pricesOf(env); err == nil || !strings.Contains(err.Error(), "prices.json: ") {
		t.Errorf("a folder in the file's place: %v", err)
	}
	if _, err := pricesOf(func(string) string { return "" }); err != nil {
		t.Errorf("without a home: %v", err)
	}
}
