package reads

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // names of zones mean the same on every machine

	"github.com/tallylog/tally/events"
)

// Time parses the time of a filter, a member of a query: an RFC 3339 time or a beginning of it, the name of a day, or how
// long ago it was. An empty text is the zero time. Days begin at midnight UTC, in which times are printed.
func Time(member, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if at, ok := Instant(text); ok {
		return at, nil
	}
	words := strings.ToLower(strings.TrimSpace(text))
	if at, ok := dayOf(words, now.UTC()); ok {
		return at, nil
	}
	if at, ok := Ago(words, now); ok {
		return at, nil
	}
	return time.Time{}, &events.InvalidError{Field: member, Reason: fmt.Sprintf("%q: want a time such as 2026-08-22 or 2026-08-22T10:00Z, a day such as today, or how long ago, such as 36h", text)}
}

// Instant parses an RFC 3339 time or a beginning of it.
func Instant(text string) (time.Time, bool) {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04Z07:00", "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02"} {
		if at, err := time.Parse(layout, text); err == nil {
			return at, true
		}
	}
	return time.Time{}, false
}

// dayOf returns the beginning of a day that a word names. A weekday is the last such day, possibly today.
func dayOf(word string, now time.Time) (time.Time, bool) {
	today := now.Truncate(24 * time.Hour)
	switch word {
	case "today":
		return today, true
	case "yesterday":
		return today.AddDate(0, 0, -1), true
	}
	for back := range 7 {
		if day := today.AddDate(0, 0, -back); strings.EqualFold(word, day.Weekday().String()) {
			return day, true
		}
	}
	return time.Time{}, false
}

// units are the units of durations, by their first letter or in full.
var units = []struct {
	letter, name string
	is           time.Duration
}{{"s", "second", time.Second}, {"m", "minute", time.Minute}, {"h", "hour", time.Hour}, {"d", "day", 24 * time.Hour}, {"w", "week", 7 * 24 * time.Hour}}

// Ago parses 36h, 1h30m, 7d, 2w, -10m and "2 weeks ago".
func Ago(words string, now time.Time) (time.Time, bool) {
	plain := strings.TrimPrefix(words, "-")
	if d, err := time.ParseDuration(plain); err == nil && d >= 0 {
		return now.Add(-d), true
	}
	fields := strings.Fields(words)
	for _, u := range units {
		number, ok := strings.CutSuffix(plain, u.letter)
		if len(fields) == 3 && fields[2] == "ago" && (fields[1] == u.name || fields[1] == u.name+"s") {
			number, ok = fields[0], true
		}
		n, err := strconv.ParseFloat(number, 64)
		if !ok || err != nil {
			continue
		}
		d := n * float64(u.is)
		return now.Add(-time.Duration(d)), d >= 0 && d < float64(1<<63-1)
	}
	return time.Time{}, false
}

// Zone is a time zone with its printed name. The zero Zone is UTC.
type Zone struct {
	*time.Location
	Name string
}

// ZoneNamed returns the zone with a name such as Europe/Berlin.
func ZoneNamed(name string) (Zone, error) {
	loc, err := time.LoadLocation(name)
	if err != nil || name == "" || name == "Local" {
		return Zone{}, &events.InvalidError{Field: "tz", Reason: fmt.Sprintf("%q: want a time zone such as Europe/Berlin or UTC", name)}
	}
	return Zone{loc, name}, nil
}

// Day returns the day of a time in the zone, such as 2026-03-01.
func (z Zone) Day(at time.Time) string {
	return at.In(cmp.Or(z.Location, time.UTC)).Format(time.DateOnly)
}

// DayOf returns the day of a time in the zone. If the time is unknown, it returns the day in UTC.
func (z Zone) DayOf(at events.Timestamp, utc string) string {
	if t, ok := at.Time(); ok {
		return z.Day(t)
	}
	return utc
}
