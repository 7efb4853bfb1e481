package page

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tallylog/tally/events"
)

// Without Costs, a page sums the costs of its events. An unknown amount is not zero; an amount of zero is.
func TestCosts(t *testing.T) {
	unknown := &events.CostAccrued{Model: "m", Purpose: "run", Source: "reported", Tokens: &events.Tokens{Input: 1}}
	free := &events.CostAccrued{Model: "m", Purpose: "run", Source: "reported", USD: "0"}
	paid := &events.CostAccrued{Model: "m", Purpose: "run", Source: "computed", USD: "0.33"}
	for _, c := range []struct {
		name  string
		costs []events.Payload
		want  []string
	}{
		{"no cost", nil, nil},
		{"unknown alone", []events.Payload{unknown}, []string{"? USD, unknown: 1 cost"}},
		{"unknown twice", []events.Payload{unknown, unknown}, []string{"? USD, unknown: 2 costs"}},
		{"unknown and paid", []events.Payload{unknown, paid}, []string{"0.33 USD, computed", "? USD, unknown: 1 cost"}},
		{"unknown and free", []events.Payload{free, unknown}, []string{"0 USD, reported", "? USD, unknown: 1 cost"}},
		{"free alone", []events.Payload{free}, []string{"0 USD, reported"}},
	} {
		t.Run("B-15 "+c.name, func(t *testing.T) {
			p := loaded(t, "s", append([]events.Payload{says("main", "", `"x"`)}, c.costs...)...)
			var got []string
			for _, f := range p.Facts() {
				if f.Label == "cost" {
					got = f.Values
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("want -, got +:\n%s", diff)
			}
			for _, ext := range []string{".md", ".html"} {
				if text := written(t, p, ext); len(c.want) == 0 && strings.Contains(text, "USD") {
					t.Errorf("the page %s has a cost:\n%s", ext, text)
				}
			}
		})
	}
}
