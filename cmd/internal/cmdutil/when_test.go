package cmdutil

import (
	"testing"
	"time"

	"github.com/tallylog/tally/internal/reads"
)

func TestWhen(t *testing.T) {
	now := time.Date(2026, 11, 22, 15, 4, 5, 0, time.FixedZone("", 3600)) // 14:04:05 UTC, a Sunday
	for text, want := range map[string]string{
		"2026-08-22T10:00Z":      "2026-08-22T10:00:00Z",
		"2026-08-22T10:00+02:00": "2026-08-22T08:00:00Z",
		"2026-08-22":             "2026-08-22T00:00:00Z",
		"today":                  "2026-11-22T00:00:00Z",
		"Yesterday":              "2026-11-21T00:00:00Z",
		"sunday":                 "2026-11-22T00:00:00Z",
		"monday":                 "2026-11-16T00:00:00Z",
		"Saturday":               "2026-11-21T00:00:00Z",
		"90m":                    "2026-11-22T12:34:05Z",
		"1h30m":                  "2026-11-22T12:34:05Z",
		"-10m":                   "2026-11-22T13:54:05Z",
		"7d":                     "2026-11-15T14:04:05Z",
		"1.5d":                   "2026-11-21T02:04:05Z",
		"2w":                     "2026-11-08T14:04:05Z",
		"2 weeks ago":            "2026-11-08T14:04:05Z",
		"1 day ago":              "2026-11-21T14:04:05Z",
		"30 Minutes ago":         "2026-11-22T13:34:05Z",
	} {
		at, err := When("since", text, now)
		if got := at.UTC().Format(time.RFC3339); err != nil || got != want {
			t.Errorf("%q: %s, %v, want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"tomorrow", "soon", "2 weeks", "-1d-", "--1d", "1e300d", "NaNd", "infd", "2026-13-01", "d", "w ago", " "} {
		if at, err := When("since", text, now); err == nil {
			t.Errorf("%q: %v, want an error", text, at)
		}
	}
	if at, err := When("since", "", now); err != nil || !at.IsZero() {
		t.Errorf("an empty text: got %v, %v", at, err)
	}
}

// Every input is a time or an error, and a duration ago is never in the future.
func FuzzWhen(f *testing.F) {
	for _, text := range []string{"7d", "2 weeks ago", "-10m", "yesterday", "1e9w", "2026-08-22T10:00Z"} {
		f.Add(text)
	}
	now := time.Date(2026, 11, 22, 14, 4, 5, 0, time.UTC)
	f.Fuzz(func(t *testing.T, text string) {
		at, ok := reads.Ago(text, now)
		if ok && at.After(now) {
			t.Errorf("%q: got %v", text, at)
		}
		_, _ = When("since", text, now)
	})
}
