package events_test

import (
	"math"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tallylog/tally/events"
)

func TestOffset(t *testing.T) {
	for text, want := range map[string]events.Offset{
		"@1234": 1234, "1234": 1234, "00000000000000001234": 1234, "@0": 0, "0": 0, "9007199254740991": events.MaxOffset,
	} {
		if got, err := events.ParseOffset(text); err != nil || got != want {
			t.Errorf("ParseOffset(%q) = %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "@", "@@1", "+1", "@+1", "-1", "1.0", "1e3", " 1", "0x1", "1_0", "９", "9007199254740992", "18446744073709551616"} {
		_, err := events.ParseOffset(text)
		mustBeInvalid(t, text, err, "offset")
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := events.Offset(rapid.Uint64Max(uint64(events.MaxOffset)).Draw(t, "a")), events.Offset(rapid.Uint64Max(uint64(events.MaxOffset)).Draw(t, "b"))
		if a < b != (a.Padded() < b.Padded()) {
			t.Fatalf("%s and %s do not sort like their numbers", a.Padded(), b.Padded())
		}
		for _, text := range []string{a.String(), a.Padded()} {
			if got, err := events.ParseOffset(text); err != nil || got != a {
				t.Fatalf("ParseOffset(%s) = %d, %v, want %d", text, got, err, uint64(a))
			}
		}
	})
}

func TestTimestamp(t *testing.T) {
	at := time.Date(2026, 3, 1, 13, 0, 0, 123456789, time.FixedZone("", 3600))
	if got := events.TimestampOf(at); got != "2026-03-01T12:00:00.123Z" {
		t.Errorf("TimestampOf = %s", got)
	}
	west := time.FixedZone("", -int((23*time.Hour + 59*time.Minute).Seconds()))
	for _, at := range []time.Time{time.Date(9999, 12, 31, 23, 59, 59, 0, west), time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC)} {
		if got := events.TimestampOf(at); got != "" {
			t.Errorf("TimestampOf(%v) = %s, want \"\" as RFC 3339 has no such year", at, got)
		}
	}
	for text, want := range map[events.Timestamp]time.Time{
		"2026-03-01T12:00:00Z":                    time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
		"2026-03-01T12:00:00.123456789-00:00":     time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC),
		"2026-03-01T12:00:00.1+23:59":             time.Date(2026, 2, 28, 12, 1, 0, 1e8, time.UTC),
		"2024-02-29T00:00:00.0000000000000-01:00": time.Date(2024, 2, 29, 1, 0, 0, 0, time.UTC),
	} {
		got, ok := text.Time()
		if !ok || !got.Equal(want) {
			t.Errorf("%s is %v, %v, want %v", text, got, ok, want)
		}
		if got.Location() == time.Local && time.Local != time.UTC {
			t.Errorf("%s was parsed in the machine's zone", text)
		}
	}
	for _, text := range []events.Timestamp{"", "2026-03-01", "2026-03-01 12:00:00Z", "2026-03-01T12:00:60Z", "2026-03-01T24:00:00Z", "2026-02-29T00:00:00Z", "2026-03-01T12:00:00+0100", "2026-03-01T12:00:00+01:60", "2026-03-01T12:00:00.5", "+2026-03-01T12:00:00Z"} {
		if at, ok := text.Time(); ok {
			t.Errorf("%q is %v, want it invalid", text, at)
		}
	}
}

func TestDocRef(t *testing.T) {
	doc := events.Document("acme", "recipe", "a@b/c")
	for _, tc := range []struct {
		at   events.Offset
		text events.DocRef
	}{{0, "document/recipe/a=40b=2Fc"}, {7, "document/recipe/a=40b=2Fc@7"}} {
		if got := events.RefOf(doc, tc.at); got != tc.text {
			t.Errorf("RefOf = %s, want %s", got, tc.text)
		}
		if got, at, err := tc.text.Parse("acme"); err != nil || got != doc || at != tc.at {
			t.Errorf("%s is parsed as %v at %v, %v", tc.text, got, at, err)
		}
	}
	for _, text := range []events.DocRef{"", events.Absent, "session/s", "document/recipe/x@", "document/recipe/x@0", "document/recipe/x@@7", "document/recipe/x@7@8", "document/session/x"} {
		_, _, err := text.Parse("acme")
		mustBeInvalid(t, string(text), err, "")
	}
}

func TestAmount(t *testing.T) {
	for text, want := range map[events.Amount]string{"0": "0/1", "0.0125": "1/80", "-1.50": "-3/2", "00.10": "1/10", "123456789012345678901234567890": "123456789012345678901234567890/1"} {
		if got, ok := text.Rat(); !ok || got.String() != want {
			t.Errorf("%s is %v, %v, want %s", text, got, ok, want)
		}
	}
	for _, text := range []events.Amount{"", "-", "1.", ".1", "1e3", "1/3", "+1", "--1", "0x1", "1_0", "NaN", "Inf", " 1", "١"} {
		if got, ok := text.Rat(); ok {
			t.Errorf("%q is %v, want it invalid", text, got)
		}
	}
	for want, r := range map[events.Amount]*big.Rat{"0": new(big.Rat), "0.0125": big.NewRat(1, 80), "-1.5": big.NewRat(-3, 2), "7": big.NewRat(14, 2)} {
		if got := events.AmountOf(r); got != want {
			t.Errorf("AmountOf(%v) = %s, want %s", r, got, want)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("AmountOf(1/3) did not panic")
		}
	}()
	events.AmountOf(big.NewRat(1, 3))
}

// Sums of amounts are exact, whatever their order.
func TestAmountSums(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		amounts := rapid.SliceOf(rapid.StringMatching(`[0-9]{1,9}(\.[0-9]{1,9})?`)).Draw(t, "amounts")
		there, back := new(big.Rat), new(big.Rat)
		for i := range amounts {
			a, _ := events.Amount(amounts[i]).Rat()
			b, _ := events.Amount(amounts[len(amounts)-1-i]).Rat()
			there.Add(there, a)
			back.Add(back, b)
		}
		if events.AmountOf(there) != events.AmountOf(back) {
			t.Fatalf("sums in two orders: %v and %v", there, back)
		}
		if again, ok := events.AmountOf(there).Rat(); !ok || again.Cmp(there) != 0 {
			t.Fatalf("amount %s is not the sum %v", events.AmountOf(there), there)
		}
	})
}

func TestTokens(t *testing.T) {
	a := events.Tokens{Input: 1, Output: 20, Reasoning: 5, CacheRead: 300, CacheWrite: 4000}
	if got := a.Total(); got != 4321 {
		t.Errorf("Total = %d, want 4321: output includes reasoning", got)
	}
	if got := a.Add(a); got != (events.Tokens{Input: 2, Output: 40, Reasoning: 10, CacheRead: 600, CacheWrite: 8000}) {
		t.Errorf("Add = %v", got)
	}
}

func TestRangeIncludes(t *testing.T) {
	s, other, doc := events.Session("acme", "s"), events.Session("b", "s"), events.Document("acme", "recipe", "r")
	for _, tc := range []struct {
		name string
		r    events.Range
		sub  events.Subject
		at   events.Offset
		want bool
	}{
		{"the zero range is everything", events.Range{}, s, 1, true},
		{"nothing stands at 0", events.Range{}, s, 0, false},
		{"to the very end", events.Range{}, s, math.MaxUint64, true},
		{"After is exclusive", events.Range{After: 7}, s, 7, false},
		{"beyond After", events.Range{After: 7}, s, 8, true},
		{"Upto is inclusive", events.Range{Upto: 7}, s, 7, true},
		{"beyond Upto", events.Range{Upto: 7}, s, 8, false},
		{"an empty range", events.Range{After: 7, Upto: 7}, s, 7, false},
		{"the subject", events.Range{Subject: s}, s, 1, true},
		{"another subject", events.Range{Subject: s}, other, 1, false},
		{"a subject decides alone", events.Range{Subject: s, Namespace: "b", Kind: "recipe"}, s, 1, true},
		{"namespace", events.Range{Namespace: "acme"}, doc, 1, true},
		{"another namespace", events.Range{Namespace: "acme"}, other, 1, false},
		{"kind", events.Range{Kind: "recipe"}, doc, 1, true},
		{"another kind", events.Range{Kind: "recipe"}, s, 1, false},
		{"both", events.Range{Namespace: "b", Kind: "session"}, other, 1, true},
		{"the limit is the reader's", events.Range{Limit: 1}, s, 9, true},
	} {
		if got := tc.r.Includes(tc.sub, tc.at); got != tc.want {
			t.Errorf("%s: got %v, want %v", tc.name, got, tc.want)
		}
	}
}
