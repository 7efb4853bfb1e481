package inspect

import (
	"io"
	"strings"
	"testing"

	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/internal/prices"
	"github.com/tallylog/tally/internal/reads"
	"github.com/tallylog/tally/internal/spend"
)

func priced(t *testing.T) prices.Table {
	t.Helper()
	table, err := prices.Parse([]byte(`{"prices": [{"models": ["m"], "input": "1", "output": "2"}]}`), "test")
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// Tokens in turns have their own line, in the table as in JSON.
func TestInTurns(t *testing.T) {
	table := priced(t)
	groups, whole := spend.New(table), spend.New(table)
	cost := catalog.Usage{Source: "reported", Day: "2026-01-01", Model: "m", USD: "0.25", Tokens: events.Tokens{Input: 10}}
	groups.Add("m", cost)
	whole.Add("", cost)
	whole.Add("", catalog.Usage{Source: catalog.InTurn, Day: "2026-01-01", Model: "m", Tokens: events.Tokens{Input: 100, Output: 50}})
	whole.Add("", catalog.Usage{Source: catalog.InTurn, Day: "2026-01-01", Model: "other", Tokens: events.Tokens{Output: 3}})
	doc := reads.Costs{By: "model", Spent: whole.Of(""), InTurns: whole.ToldOf(""), Groups: []reads.CostGroup{{Key: "m", Sum: groups.Of("m")}}}
	got := strings.Join(costTable(&cmdutil.App{Out: io.Discard, Color: cli.ColorNever}, doc, true).Lines(100), "\n")
	want := `MODEL      USD     ~USD  INPUT  OUTPUT  CACHE READ  CACHE WRITE  UNKNOWN
m         0.25        -     10       0           0            0        0
spent     0.25        -     10       0           0            0        0
in turns     -  ~0.0002    100      53           0            0        1`
	if got != want {
		t.Errorf("\n%s\nwant\n%s", got, want)
	}
}

func TestShort(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1.00k", 9994: "9.99k", 9996: "10.0k", 99_949: "99.9k", 99_960: "100k", 999_499: "999k", 999_501: "1.00M", 1_230_000: "1.23M", 45_600_000_000: "45.6G", 7_000_000_000_000: "7T"} {
		if got := short(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}
