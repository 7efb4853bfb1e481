package prices

import (
	"errors"
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallylog/tally/events"
)

// What the makers' own pages give, and what follows from it by hand.
func TestBuiltin(t *testing.T) {
	for _, c := range []struct {
		model, day string
		tokens     events.Tokens
		want       events.Amount // "": not known
	}{
		// 3 and 15 USD for a million; 0.30 read from the cache, 3.75 written to it.
		{"claude-sonnet-4-5-20250929", "2025-10-01", events.Tokens{Input: 100_000}, "0.3"},
		{"claude-sonnet-4-5-20250929", "2025-10-01", events.Tokens{Output: 2_000}, "0.03"},
		{"claude-sonnet-4-5", "2026-01-01", events.Tokens{Input: 12, Output: 345, Reasoning: 300, CacheRead: 6789, CacheWrite: 101}, "0.00762645"},
		{"claude-sonnet-4-5", "2026-01-01", events.Tokens{Input: 100_000, CacheRead: 100_001}, ""}, // a longer prompt than the price is for
		{"claude-sonnet-4-5", "2025-09-28", events.Tokens{Input: 1}, ""},                           // before there was a price
		{"claude-opus-4-1", "2026-01-01", events.Tokens{Output: 10}, "0.00075"},
		{"claude-opus-4-5", "2026-01-01", events.Tokens{Output: 10}, "0.00025"},
		// The cache got cheaper on a day.
		{"claude-sonnet-5-5", "2026-10-06", events.Tokens{CacheRead: 1_000_000}, "0.2"},
		{"claude-sonnet-5-5", "2026-10-07", events.Tokens{CacheRead: 1_000_000}, "0.1"},
		// A long prompt costs more, and so does what is answered to it.
		{"claude-haiku-5-5", "2026-11-01", events.Tokens{Input: 90_000, CacheWrite: 10_000, Output: 1_000_000}, "0.51025"},
		{"claude-haiku-5-5", "2026-11-01", events.Tokens{Input: 90_001, CacheWrite: 10_000, Output: 1_000_000}, "2.5512505"},
		{"gpt-5.4", "2026-06-01", events.Tokens{Input: 272_000}, "0.68"},
		{"gpt-5.4", "2026-06-01", events.Tokens{Input: 272_001}, "1.360005"},
		{"gpt-5.4-mini", "2026-06-01", events.Tokens{Input: 1_000_000, Output: 1_000_000, CacheRead: 1_000_000}, "5.325"},
		{"gemini-2.5-pro", "2026-01-01", events.Tokens{Input: 1_000, Output: 1_000}, "0.01125"},
		{"gemini-2.5-pro", "2026-01-01", events.Tokens{Input: 1_000, CacheRead: 1}, ""}, // of a class without a price
		{"gpt-5.4-pro", "2026-06-01", events.Tokens{Input: 1}, ""},
		{"anthropic/claude-opus-4-5", "2026-01-01", events.Tokens{Input: 1}, ""}, // sold by another
		{"claude-opus-4-5", "2026-01-01", events.Tokens{}, ""},
		{"", "2026-01-01", events.Tokens{Input: 1}, ""},
	} {
		got, p, ok := Builtin().USD(c.model, c.day, c.tokens)
		if got != c.want || ok != (c.want != "") {
			t.Errorf("%s on %s, %+v: %q %v, want %q", c.model, c.day, c.tokens, got, ok, c.want)
		}
		if ok && (p.Source == "" || p.Checked == "") {
			t.Errorf("%s: the price does not say where it is from", c.model)
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

// What a user says of a model counts before what the program knows, from its day on.
func TestBefore(t *testing.T) {
	mine := table(t, `{"models": ["claude-opus-4-5"], "from": "2026-03-01", "input": "1", "output": "2"}, {"models": ["local-*"], "input": "0", "output": "0"}`)
	both := mine.Before(Builtin())
	for _, c := range []struct {
		model, day, want, source string
	}{
		{"claude-opus-4-5", "2026-02-28", "5", "https://platform.claude.com/docs/en/about-claude/pricing"},
		{"claude-opus-4-5", "2026-03-01", "1", "mine"},
		{"local-7b", "2020-01-01", "0", "mine"},
		{"claude-haiku-4-5", "2026-03-01", "1", "https://platform.claude.com/docs/en/about-claude/pricing"},
	} {
		got, p, ok := both.USD(c.model, c.day, events.Tokens{Input: 1_000_000})
		if !ok || string(got) != c.want || p.Source != c.source {
			t.Errorf("%s on %s: %s from %s, want %s from %s", c.model, c.day, got, p.Source, c.want, c.source)
		}
	}
	if _, _, ok := both.USD("claude-opus-4-5", "2026-03-01", events.Tokens{CacheRead: 1}); ok {
		t.Error("a class that the user gave no price has one")
	}
}

// The entry that names a model most closely counts, whatever the order.
func TestCloseness(t *testing.T) {
	for _, list := range []string{
		`{"models": ["*"], "input": "1", "output": "1"}, {"models": ["a-*"], "input": "2", "output": "1"}, {"models": ["a-b"], "input": "3", "output": "1"}`,
		`{"models": ["a-b"], "input": "3", "output": "1"}, {"models": ["a-*"], "input": "2", "output": "1"}, {"models": ["*"], "input": "1", "output": "1"}`,
	} {
		for model, want := range map[string]events.Amount{"a-b": "3", "a-": "2", "a-bc": "2", "b": "1", "": "1"} {
			if p, _ := table(t, list).of(model, "2026-01-01", 0); p.Input != want {
				t.Errorf("%q costs %s, want %s", model, p.Input, want)
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

// What tokens cost together is what they cost one by one.
func TestSumsAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := rapid.Int64Range(0, 1<<53)
		p := Price{Input: "1.25", Output: "0.333", CacheRead: "0.0125", CacheWrite: "7"}
		a := events.Tokens{Input: draw.Draw(t, "in") + 1, Output: draw.Draw(t, "out"), CacheRead: draw.Draw(t, "read"), CacheWrite: draw.Draw(t, "write")}
		sum := new(big.Rat)
		for _, one := range []events.Tokens{{Input: a.Input}, {Output: a.Output}, {CacheRead: a.CacheRead}, {CacheWrite: a.CacheWrite}} {
			if usd, ok := p.usd(one); ok {
				r, _ := usd.Rat()
				sum.Add(sum, r)
			}
		}
		if got, ok := p.usd(a); !ok || got != events.AmountOf(sum) {
			t.Fatalf("%v: %s %v, want %s", a, got, ok, events.AmountOf(sum))
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
	} {
		_, err := Parse([]byte(c.text), "")
		if _, ok := errors.AsType[*Error](err); !ok || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.text, err, c.want)
		}
	}
}

// Whatever is read is refused in a line that is there, or answers without a fault.
func FuzzParse(f *testing.F) {
	f.Add(builtin)
	f.Add([]byte(`{"prices": [{"models": ["a*b", "*"], "from": "2026-01-01", "upTo": 7, "input": "1", "output": "0.5", "cacheRead": "0", "cacheWrite": "2"}]}`))
	f.Add([]byte("{\"prices\":\n[{\"models\":[\"a\"],\"input\":1}]}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		table, err := Parse(data, "s")
		if e, ok := errors.AsType[*Error](err); ok {
			if e.Line < 1 || e.Line > 1+strings.Count(string(data), "\n") {
				t.Fatalf("%v of %d lines", err, strings.Count(string(data), "\n"))
			}
			return
		}
		if err != nil {
			t.Fatalf("%T: %v", err, err)
		}
		for _, layer := range table.layers {
			for _, e := range layer {
				if _, ok := table.of(strings.ReplaceAll(e.models[0], "*", ""), "9999-12-31", 0); !ok {
					t.Fatalf("the table does not know %q, which it names", e.models[0])
				}
				if usd, ok := e.price.usd(events.Tokens{Input: 1, Output: 1}); !ok || usd == "" {
					t.Fatalf("no cost at %+v", e.price)
				}
			}
		}
	})
}
