package prices

import (
	"cmp"
	"errors"
	"math/big"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallylog/tally/events"
)

// Each figure comes from the named row of a maker's page, or of a report about it, and was computed by hand.
func TestBuiltin(t *testing.T) { t.Run("B-13 B-14 list prices of the makers", listPrices) }

func listPrices(t *testing.T) {
	hour := func(n int64) events.Terms { return events.Terms{CacheHour: n} }
	fast := events.Terms{Speed: "fast"}
	for _, c := range []struct {
		model, day string
		tokens     events.Tokens
		terms      events.Terms
		want       string // "" if unknown; > in front if a part has no price
	}{
		// 3 and 15 USD for a million; 0.30 read from the cache, 3.75 written to it.
		{"claude-sonnet-4-5-20250929", "2025-10-01", events.Tokens{Input: 100_000}, events.Terms{}, "0.3"},
		{"claude-sonnet-4-5-20250929", "2025-10-01", events.Tokens{Output: 2_000}, events.Terms{}, "0.03"},
		{"claude-sonnet-4-5", "2026-01-01", events.Tokens{Input: 12, Output: 345, Reasoning: 300, CacheRead: 6789, CacheWrite: 101}, events.Terms{}, "0.00762645"},
		{"claude-sonnet-4-5", "2025-09-28", events.Tokens{Input: 1}, events.Terms{}, ""}, // before the first price
		{"claude-opus-4-1", "2026-01-01", events.Tokens{Output: 10}, events.Terms{}, "0.00075"},
		{"claude-opus-4-5", "2026-01-01", events.Tokens{Output: 10}, events.Terms{}, "0.00025"},
		// B-13: tokens cached for an hour cost twice the input price, other cached tokens 1.25 times.
		{"claude-sonnet-4-6", "2026-08-01", events.Tokens{CacheWrite: 1_000_000}, hour(1_000_000), "6"},
		{"claude-sonnet-4-6", "2026-08-01", events.Tokens{CacheWrite: 1_000_000}, hour(400_000), "4.65"},
		{"claude-sonnet-4-6", "2026-08-01", events.Tokens{CacheWrite: 1_000_000}, hour(9_000_000), "6"}, // no more than were written
		// B-14: a longer prompt costs more, and so does its response.
		{"claude-sonnet-4-5", "2025-10-02", events.Tokens{Input: 1_000, Output: 2_000, CacheRead: 250_000}, events.Terms{}, "0.201"},
		{"claude-sonnet-4-6", "2026-03-12", events.Tokens{Input: 200_001}, events.Terms{}, "1.200006"},
		{"claude-sonnet-4-6", "2026-03-13", events.Tokens{Input: 200_001}, events.Terms{}, "0.600003"},
		{"claude-haiku-5-5", "2026-11-01", events.Tokens{Input: 90_000, CacheWrite: 10_000, Output: 1_000_000}, events.Terms{}, "0.51025"},
		{"claude-haiku-5-5", "2026-11-01", events.Tokens{Input: 90_001, CacheWrite: 10_000, Output: 1_000_000}, events.Terms{}, "2.5512505"},
		{"gpt-5.4", "2026-06-01", events.Tokens{Input: 272_000}, events.Terms{}, "0.68"},
		{"gpt-5.4", "2026-06-01", events.Tokens{Input: 272_001}, events.Terms{}, "1.360005"},
		{"gpt-5.6-luna", "2026-08-15", events.Tokens{Input: 272_001}, events.Terms{}, ""}, // reports disagree
		// A price changes on a day.
		{"claude-sonnet-5-5", "2026-10-06", events.Tokens{CacheRead: 1_000_000}, events.Terms{}, "0.2"},
		{"claude-sonnet-5-5", "2026-10-07", events.Tokens{CacheRead: 1_000_000}, events.Terms{}, "0.1"},
		{"gpt-5.6-sol", "2026-08-20", events.Tokens{Output: 1_000_000}, events.Terms{}, "30"},
		{"gpt-5.6-sol", "2026-08-21", events.Tokens{Output: 1_000_000}, events.Terms{}, "20"},
		{"gemini-3.8-flash", "2026-12-31", events.Tokens{Output: 1_000_000}, events.Terms{}, "3.75"},
		{"gemini-3.8-flash", "2027-01-01", events.Tokens{Output: 1_000_000}, events.Terms{}, "7.5"},
		// Speed.
		{"claude-opus-4-6", "2026-08-01", events.Tokens{Input: 1_000, Output: 1_000, CacheRead: 10_000}, fast, "0.21"},
		{"claude-opus-4-8", "2026-08-01", events.Tokens{Input: 1_000, Output: 1_000, CacheRead: 10_000}, fast, "0.07"},
		{"claude-opus-4-8", "2026-08-01", events.Tokens{Input: 1_000, Output: 1_000, CacheRead: 10_000}, events.Terms{}, "0.035"},
		{"claude-sonnet-4-6", "2026-08-01", events.Tokens{Input: 1_000}, fast, ""}, // not sold at this speed
		{"claude-opus-4-8", "2026-08-01", events.Tokens{Input: 1_000}, events.Terms{Speed: "ludicrous"}, ""},
		// Region and tier of service.
		{"claude-opus-4-6", "2026-08-01", events.Tokens{Input: 1_000_000}, events.Terms{Region: "us"}, "5.5"},
		{"claude-opus-4-6", "2026-08-01", events.Tokens{Input: 1_000_000}, events.Terms{Region: "mars"}, ""},
		{"claude-opus-4-6", "2026-08-01", events.Tokens{Input: 1_000_000}, events.Terms{Tier: "batch"}, "2.5"},
		{"claude-opus-4-6", "2026-08-01", events.Tokens{Input: 1_000_000}, events.Terms{Tier: "priority"}, ""},
		{"gpt-6.1-sol", "2026-10-01", events.Tokens{Input: 100_000}, events.Terms{Tier: "priority"}, "0.4"},
		// Searches of the maker: 10 USD for a thousand, whatever the tier.
		{"claude-sonnet-4-6", "2026-08-01", events.Tokens{Input: 1_000, Output: 100}, events.Terms{Searches: 3}, "0.0345"},
		{"claude-sonnet-4-6", "2026-08-01", events.Tokens{Input: 1_000}, events.Terms{Searches: 1, Tier: "batch"}, "0.0115"},
		{"claude-opus-4-6", "2026-08-01", events.Tokens{Input: 1_000}, events.Terms{Searches: 1, Tier: "priority"}, ">0.01"},
		{"gpt-5", "2026-08-01", events.Tokens{Input: 1_000}, events.Terms{Searches: 1}, ">0.00125"},
		// Since GPT-5.6, tokens written to the cache have their own price.
		{"gpt-5.6-terra", "2026-08-01", events.Tokens{Input: 2_318, Output: 251, CacheRead: 20_000, CacheWrite: 1_000}, events.Terms{}, "0.014148"},
		{"gpt-5.4", "2026-08-01", events.Tokens{Input: 1_000, CacheWrite: 1}, events.Terms{}, ">0.0025"},
		{"gpt-5.4", "2026-08-01", events.Tokens{CacheWrite: 1}, events.Terms{}, ""}, // no part has a known price
		{"gpt-5.4-mini", "2026-06-01", events.Tokens{Input: 1_000_000, Output: 1_000_000, CacheRead: 1_000_000}, events.Terms{}, "5.325"},
		{"gemini-2.5-pro", "2026-06-22", events.Tokens{Input: 3_500, Output: 600, CacheRead: 18_000}, events.Terms{}, "0.012625"},
		{"gemini-2.5-pro", "2026-01-01", events.Tokens{Input: 1_000, CacheRead: 1}, events.Terms{}, ">0.00125"},
		{"claude-opus-4-5", "2026-01-01", events.Tokens{}, events.Terms{}, ""},
		{"", "2026-01-01", events.Tokens{Input: 1}, events.Terms{}, ""},
	} {
		got := Builtin().Cost(Usage{c.model, c.day, c.tokens, c.terms})
		if text := spell(got); text != c.want {
			t.Errorf("%s on %s, %+v, %+v: %s, want %s", c.model, c.day, c.tokens, c.terms, text, c.want)
		}
		if got.USD != "" && (got.Price.Source == "" || got.Price.Checked == "") {
			t.Errorf("%s: the price has no source", c.model)
		}
	}
}

func spell(c Cost) string {
	if c.Part {
		return ">" + string(c.USD)
	}
	return string(c.USD)
}

// B-14: sellers use several names for a model. A name that merely begins like one of these is another model.
func TestNames(t *testing.T) { t.Run("B-14 names under which a model is sold", soldNames) }

func soldNames(t *testing.T) {
	million := events.Tokens{Input: 1_000_000}
	usd := func(model string) string {
		return spell(Builtin().Cost(Usage{Model: model, Day: "2026-11-20", Tokens: million}))
	}
	for model, want := range map[string]string{
		"claude-opus-4-5": "5", "claude-opus-4-5-20251101": "5", "claude-opus-4-5-2025-11-01": "5", "claude-opus-4-5[1m]": "5",
		"anthropic/claude-opus-4-5": "5", "anthropic/claude-opus-4.5": "5", "openrouter/anthropic/claude-opus-4.5": "5", "anthropic/claude-3.7-sonnet:thinking": "3",
		"anthropic.claude-opus-4-5-20251101-v1:0": "5", "global.anthropic.claude-opus-4-5-20251101-v1:0": "5", "bedrock/anthropic.claude-opus-4-5-20251101-v1:0": "5",
		"anthropic.claude-opus-4-8": "5", "us.anthropic.claude-opus-4-6-v1": "5.5",
		"us.anthropic.claude-opus-4-5-20251101-v1:0": "5.5", "eu.anthropic.claude-opus-4-5-20251101-v1:0": "5.5", // a region costs a tenth more since 4.5
		"us.anthropic.claude-3-7-sonnet-20250219-v1:0":                                                          "3",
		"arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.anthropic.claude-3-7-sonnet-20250219-v1:0": "3",
		"claude-opus-4-5@20251101": "5", "claude-sonnet-5@default": "2", "vertex_ai/claude-opus-4-5@20251101": "5", "publishers/anthropic/models/claude-opus-4-5@20251101": "5",
		"claude-3-5-haiku-latest": "0.8", "claude-3-5-haiku-20241022": "0.8",
		"openai/gpt-5": "1.25", "gpt-5-2025-08-07": "1.25", "openai/gpt-5-codex": "1.25", "gpt-5.1-codex-mini": "0.25", "gpt-5.1": "1.25", "gpt-4o-2024-05-13": "5",
		"models/gemini-2.5-flash": "0.3", "google/gemini-2.5-flash": "0.3", "gemini/gemini-2.5-flash": "0.3", "gemini-2.5-flash-001": "0.3",
		"gpt-5.10": "", "gpt-5-codex-mini": "", "gpt-5-mini-codex": "", "gpt-5.9": "", "gpt-5-20": "", "xgpt-5": "", "gpt-5x": "", "GPT-5": "",
		"claude-opus-4-2": "", "claude-opus-4-50": "", "claude-opus-4-5-mini": "", "claude-sonnet-4-20": "", "claude-opus-4-5-20259901": "", "my-claude-opus-4-5": "",
		"anthropic/claude-opus-4.5:free": "", "anthropic/gpt-5": "", "google/claude-opus-4-5": "", "somebody/claude-opus-4-5": "", "anthropic.claude-opus-4-5x-v1:0": "",
		"gemini-2.5-flash-image": "", "gemini-2.5-flash-preview-09-2025": "", "claude-opus-4-5@": "", "claude-opus-4-5@20251101@x": "", "mars.anthropic.claude-opus-4-5-20251101-v1:0": "",
		"/": "", "//": "", "anthropic/": "", "-latest": "", "claude--latest": "", "@default": "",
	} {
		if got := usd(model); got != want {
			t.Errorf("%q costs %q, want %q", model, got, want)
		}
	}
}

// Each row of the table is found under each of its names, on its first day, and states its source. A row that another
// one hides is a mistake.
func TestBuiltinRows(t *testing.T) {
	for _, e := range Builtin().layers[0] {
		for _, model := range e.models {
			u := Usage{Model: model, Day: cmp.Or(e.price.From, "2026-11-20"), Tokens: events.Tokens{Input: cmp.Or(e.price.UpTo, 1_000_000), Output: 1}, Terms: events.Terms{Speed: e.price.Speed}}
			if c := Builtin().Cost(u); c.Price == nil || !reflect.DeepEqual(*c.Price, e.price) {
				t.Errorf("%s from %s, up to %d: found %+v, want %+v", model, e.price.From, e.price.UpTo, c.Price, e.price)
			}
			if strings.Contains(model, "*") {
				t.Errorf("%s: the pattern also matches models that do not exist yet", model)
			}
		}
		if !strings.HasPrefix(e.price.Source, "https://") || e.price.Checked == "" {
			t.Errorf("%v: source %q, checked %q", e.models, e.price.Source, e.price.Checked)
		}
	}
}

func table(t *testing.T, entries string) Table {
	t.Helper()
	got, err := Parse([]byte(`{"prices": [`+entries+`]}`), "mine")
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// A user's price takes precedence over the built-in one, from its first day on.
func TestBefore(t *testing.T) {
	mine := table(t, `{"models": ["claude-opus-4-5"], "from": "2026-03-01", "input": "1", "output": "2"}, {"models": ["local-*"], "input": "0", "output": "0"}`)
	both := mine.Before(Builtin())
	for _, c := range []struct {
		model, day, want, source string
	}{
		{"claude-opus-4-5", "2026-02-28", "5", "https://platform.claude.com/docs/en/about-claude/pricing"},
		{"claude-opus-4-5", "2026-03-01", "1", "mine"},
		{"anthropic/claude-opus-4-5", "2026-03-01", "1", "mine"},
		{"local-7b", "2020-01-01", "0", "mine"},
		{"claude-haiku-4-5", "2026-03-01", "1", "https://platform.claude.com/docs/en/about-claude/pricing"},
	} {
		got := both.Cost(Usage{Model: c.model, Day: c.day, Tokens: events.Tokens{Input: 1_000_000}})
		if string(got.USD) != c.want || !strings.HasPrefix(got.Price.Source, c.source) {
			t.Errorf("%s on %s: %s from %s, want %s from %s", c.model, c.day, got.USD, got.Price.Source, c.want, c.source)
		}
	}
	if got := both.Cost(Usage{Model: "claude-opus-4-5", Day: "2026-03-01", Tokens: events.Tokens{CacheRead: 1}}); got.USD != "" {
		t.Error("a class without a price in the user's table: got a price")
	}
	if got := both.Cost(Usage{Model: "claude-opus-4-8", Day: "2026-08-01", Tokens: events.Tokens{Input: 1}, Terms: events.Terms{Speed: "fast"}}); got.USD != "0.00001" {
		t.Errorf("fast, which the user says nothing of: %+v", got)
	}
}

// A user's table has the same members as the built-in one. Members of earlier versions keep their meaning.
func TestMembers(t *testing.T) {
	old := table(t, `{"models": ["m"], "upTo": 10, "input": "1", "output": "2", "cacheRead": "0.1", "cacheWrite": "3"}`)
	if got := spell(old.Cost(Usage{Model: "m", Day: "2026-01-01", Tokens: events.Tokens{CacheWrite: 10}})); got != "0.00003" {
		t.Errorf("in the spelling of earlier versions: %s", got)
	}
	if got := spell(old.Cost(Usage{Model: "m", Day: "2026-01-01", Tokens: events.Tokens{CacheWrite: 10}, Terms: events.Terms{CacheHour: 4}})); got != ">0.000018" {
		t.Errorf("kept for an hour, of which that table says nothing: %s", got)
	}
	now := table(t, `{"models": ["m"], "speed": "standard", "input": "1", "output": "2", "cacheWrite": "3", "cacheWrite1h": "4", "webSearch": "5", "regions": {"us": "2"}, "tiers": {"flex": "0.5"}},
		{"models": ["m"], "speed": "fast", "input": "10", "output": "20"}`)
	for _, c := range []struct {
		terms events.Terms
		want  string
	}{
		{events.Terms{}, "4"}, {events.Terms{CacheHour: 1_000_000}, "5"}, {events.Terms{Searches: 1_000}, "9"}, {events.Terms{Region: "us"}, "8"},
		{events.Terms{Tier: "flex", Region: "us"}, "4"}, {events.Terms{Tier: "other"}, ""}, {events.Terms{Speed: "fast"}, ">10"},
	} {
		if got := spell(now.Cost(Usage{"m", "2026-01-01", events.Tokens{Input: 1_000_000, CacheWrite: 1_000_000}, c.terms})); got != c.want {
			t.Errorf("%+v: %s, want %s", c.terms, got, c.want)
		}
	}
}

// The entry with the closest name applies, in any order of entries.
func TestCloseness(t *testing.T) {
	for _, list := range []string{
		`{"models": ["*"], "input": "1", "output": "1"}, {"models": ["a-*"], "input": "2", "output": "1"}, {"models": ["a-b"], "input": "3", "output": "1"}`,
		`{"models": ["a-b"], "input": "3", "output": "1"}, {"models": ["a-*"], "input": "2", "output": "1"}, {"models": ["*"], "input": "1", "output": "1"}`,
	} {
		for model, want := range map[string]events.Amount{"a-b": "3", "a-": "2", "a-bc": "2", "b": "1", "": "1"} {
			if c := table(t, list).Cost(Usage{Model: model, Day: "2026-01-01", Tokens: events.Tokens{Input: 1}}); c.Price.Input != want {
				t.Errorf("%q costs %s, want %s", model, c.Price.Input, want)
			}
		}
	}
}

func TestMatches(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"a", "a", true}, {"a", "ab", false}, {"a*", "ab", true}, {"a*b", "ab", true}, {"a*b", "a", false}, {"ab*ba", "aba", false},
		{"*b*", "abc", true}, {"*b*", "ac", false}, {"a*b*b", "ab", false}, {"a*b*b", "abb", true}, {"**", "", true},
	} {
		if got := matches(c.pattern, c.name); got != c.want {
			t.Errorf("%q is like %q: %v", c.name, c.pattern, got)
		}
	}
}

// The cost of several classes of tokens is the sum of their costs. It is never higher if parts have no price.
func TestSumsAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := rapid.Int64Range(0, 1<<53)
		p := &Price{Input: "1.25", Output: "0.333", CacheRead: "0.0125", CacheWrite: "7", CacheWrite1h: rapid.SampledFrom([]events.Amount{"", "9"}).Draw(t, "1h")}
		a := events.Tokens{Input: draw.Draw(t, "in") + 1, Output: draw.Draw(t, "out"), CacheRead: draw.Draw(t, "read"), CacheWrite: draw.Draw(t, "write")}
		terms := events.Terms{CacheHour: draw.Draw(t, "hour")}
		sum, part := new(big.Rat), false
		for _, one := range []events.Tokens{{Input: a.Input}, {Output: a.Output}, {CacheRead: a.CacheRead}, {CacheWrite: a.CacheWrite}} {
			c := p.cost(Usage{Tokens: one, Terms: terms}, "")
			if r, ok := c.USD.Rat(); ok {
				sum.Add(sum, r)
			}
			part = part || c.Part || c.USD == "" && one != (events.Tokens{})
		}
		if got := p.cost(Usage{Tokens: a, Terms: terms}, ""); got.USD != events.AmountOf(sum) || got.Part != part {
			t.Fatalf("%v: %+v, want %s, part %v", a, got, events.AmountOf(sum), part)
		}
	})
}

func TestParseErrors(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{``, `line 1: `},
		{"{\n\"prices\": [\n}", `line 3: `},
		{`[]`, `line 1: `},
		{`{}`, `line 1: want {"prices": [...]} and nothing beside it`},
		{`{"prices": [], "price": []}`, `line 1: want {"prices": [...]} and nothing beside it`},
		{"{\n\"prices\": 7}", `line 2: prices: `},
		{"{\"prices\": [\n 7]}", `line 2: want an object`},
		{"{\"prices\": [\n {\"models\": [\"a\"], \"input\": \"1\", \"output\": \"1\"},\n {\"models\": [\"a\"],\n \"input\": 1, \"output\": \"1\"}]}",
			`line 4: input: want a string, have a number; write it as a text, such as "0.5"`},
		{"{\"prices\": [{\"models\": [\"a\"],\n\n\"input\": \"1,5\", \"output\": \"1\"}]}", `line 3: input: "1,5" is not an amount such as 0.5`},
		{`{"prices": [{"models": ["a"], "input": "-1", "output": "1"}]}`, `line 1: input: "-1" is not an amount such as 0.5`},
		{`{"prices": [{"models": ["a"], "input": "1"}]}`, `line 1: output: missing`},
		{`{"prices": [{"models": [], "input": "1", "output": "1"}]}`, `line 1: models: missing: want names of models`},
		{`{"prices": [{"models": ["a", ""], "input": "1", "output": "1"}]}`, `line 1: models: a name is empty`},
		{`{"prices": [{"models": ["a"], "from": "2026-3-1", "input": "1", "output": "1"}]}`, `line 1: from: "2026-3-1" is not a day such as 2026-03-01`},
		{`{"prices": [{"models": ["a"], "input": "1", "output": "1", "cache_read": "1"}]}`, `line 1: cache_read: there is no such member`},
		{`{"prices": [{"models": ["a"], "input": "1", "output": "1", "upTo": -1}]}`, `line 1: upTo: -1 is negative`},
		{`{"prices": [{"models": ["a"], "input": "1", "output": "1", "webSearch": "ten"}]}`, `line 1: webSearch: "ten" is not an amount such as 0.5`},
		{`{"prices": [{"models": ["a"], "input": "1", "output": "1", "tiers": {"batch": ""}}]}`, `line 1: tiers: "" is not an amount such as 0.5`},
		{`{"prices": [{"models": ["a"], "input": "1", "output": "1", "regions": {"us": "-2"}}]}`, `line 1: regions: "-2" is not an amount such as 0.5`},
	} {
		_, err := Parse([]byte(c.text), "")
		if _, ok := errors.AsType[*Error](err); !ok || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.text, err, c.want)
		}
	}
}

// For any input, Parse returns an error at an existing line, or a table that computes without a fault.
func FuzzParse(f *testing.F) {
	f.Add(builtin)
	f.Add([]byte(`{"prices": [{"models": ["a*b", "*"], "from": "2026-01-01", "upTo": 7, "input": "1", "output": "0.5", "cacheRead": "0", "cacheWrite": "2", "speed": "fast", "regions": {"us": "1.1"}}]}`))
	f.Add([]byte("{\"prices\":\n[{\"models\":[\"a\"],\"input\":1}]}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		table, err := Parse(data, "s")
		if e, ok := errors.AsType[*Error](err); ok {
			if e.Line < 1 || e.Line > 1+strings.Count(string(data), "\n") {
				t.Fatalf("got %v in a text of %d lines", err, strings.Count(string(data), "\n"))
			}
			return
		}
		if err != nil {
			t.Fatalf("got %T: %v", err, err)
		}
		for _, layer := range table.layers {
			for _, e := range layer {
				if m := table.Model(strings.ReplaceAll(e.models[0], "*", "")); len(m.layers[0]) == 0 {
					t.Fatalf("the table does not find its own %q", e.models[0])
				}
				if c := e.price.cost(Usage{Tokens: events.Tokens{Input: 1, Output: 1}}, ""); c.USD == "" || c.Part {
					t.Fatalf("no cost at %+v", e.price)
				}
			}
		}
	})
}
