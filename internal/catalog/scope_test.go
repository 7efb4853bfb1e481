package catalog

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tallylog/tally/events"
)

// days returns the words of all days from the start on, and no others, at any current time and for any wrong producer's
// clock.
func TestDays(t *testing.T) {
	begin := time.Date(2019, 12, 30, 0, 0, 0, 0, time.UTC)
	rapid.Check(t, func(t *rapid.T) {
		hour := func(what string) time.Time {
			return begin.Add(time.Duration(rapid.IntRange(0, 24*900).Draw(t, what)) * time.Hour)
		}
		l := Lookup{Since: hour("since")}
		if rapid.Bool().Draw(t, "ends") {
			l.Until = l.Since.Add(time.Duration(rapid.IntRange(0, 24*150).Draw(t, "long")) * time.Hour)
		}
		now := l.Since.Add(time.Duration(rapid.IntRange(-24*30, 24*150).Draw(t, "now")) * time.Hour)
		words := l.days(now)
		if words == nil {
			t.Fatal("days returned nil, want words")
		}
		at := hour("at")
		if rapid.IntRange(0, 3).Draw(t, "far") == 0 {
			at = at.AddDate(rapid.IntRange(1, 7900).Draw(t, "years"), 0, 0)
		}
		word := dayWord(events.TimestampOf(at))
		has := slices.ContainsFunc(words, func(w string) bool {
			beginning, prefix := strings.CutSuffix(w, "*")
			return w == word || prefix && strings.HasPrefix(word, beginning)
		})
		day := func(t time.Time) time.Time { return t.Truncate(24 * time.Hour) }
		if (!at.Before(l.Since) && (l.Until.IsZero() || at.Before(l.Until))) && !has {
			t.Fatalf("%v lies between %v and %v, but its day is not in %v (now %v)", at, l.Since, l.Until, words, now)
		}
		if has && (day(at).Before(day(l.Since)) && !day(at).After(day(now).AddDate(0, 0, 1)) || !l.Until.IsZero() && day(at).After(day(l.Until))) {
			t.Fatalf("%v does not lie between %v and %v, but its day is in %v (now %v)", at, l.Since, l.Until, words, now)
		}
	})
	if words := (Lookup{Since: begin}).days(begin.AddDate(1, 0, 0)); words != nil {
		t.Errorf("days of a year returned %d words, want nil", len(words))
	}
}
