package projector

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/tallylog/tally/events"
)

// timeLayouts are the formats of a time, with the span that each covers. The digits of a fraction of a second shorten
// the span further.
var timeLayouts = []struct {
	layout string
	span   time.Duration
}{
	{time.RFC3339Nano, time.Second},
	{"2006-01-02T15:04Z07:00", time.Minute},
	{"2006-01-02T15:04:05", time.Second},
	{"2006-01-02T15:04", time.Minute},
	{"2006-01-02", 24 * time.Hour},
}

// parseTime returns the last nanosecond of the written time. Date and time may be separated by a space, as in the
// output of "log".
func parseTime(text string) (time.Time, bool) {
	const date = len("2006-01-02")
	if len(text) > date && text[date] == ' ' {
		text = text[:date] + "T" + text[date+1:]
	}
	for _, l := range timeLayouts {
		if at, err := time.Parse(l.layout, text); err == nil {
			for range digits(text) {
				l.span /= 10
			}
			return at.Add(max(l.span, 1) - 1), true
		}
	}
	return time.Time{}, false
}

// digits counts the digits of the fraction of a second.
func digits(text string) int {
	i := strings.IndexAny(text, ".,")
	if i < 0 {
		return 0
	}
	fraction := text[i+1:]
	return len(fraction) - len(strings.TrimLeft(fraction, "0123456789"))
}

// Shown returns the time of a record that commands print: the latest time of its turns, else the event's time by its
// producer's clock, else the log's time.
func (f Fact) Shown() time.Time {
	var latest time.Time
	for _, th := range f.Brings() {
		for _, turn := range th.Turns {
			if at, ok := turn.Timestamp.Time(); ok && at.After(latest) {
				latest = at
			}
		}
	}
	return cmp.Or(latest, f.Time, f.Recorded)
}

// moment is a record with its time.
type moment struct {
	offset  events.Offset
	at      time.Time
	changes bool // its type changes threads
}

// asOf returns the last record of a session at a time.
func (l *Loader) asOf(ctx context.Context, s *Session, p Position) (events.Offset, error) {
	list, err := l.moments(ctx, s)
	if err != nil {
		return 0, err
	}
	until := p.time
	if p.kind == atAgo {
		until = latestOf(list).Add(-p.ago)
	}
	n := countBefore(list, until)
	if n == 0 {
		return 0, &PositionError{s.Subject, p.String(), "its records are all later"}
	}
	return list[n-1].offset, nil
}

// countBefore counts the records that a session had at a time, as Position defines it.
func countBefore(list []moment, until time.Time) int {
	if i := slices.IndexFunc(list, func(m moment) bool { return m.changes && m.at.After(until) }); i >= 0 {
		list = list[:i]
	}
	n := len(list)
	for n > 0 && !list[n-1].changes {
		n--
	}
	for n < len(list) && !list[n].at.After(until) {
		n++
	}
	return n
}

// latestOf returns the latest time of a change of the threads; without changes, of any record.
func latestOf(list []moment) (at time.Time) {
	changed := slices.ContainsFunc(list, func(m moment) bool { return m.changes })
	for _, m := range list {
		if m.changes == changed && m.at.After(at) {
			at = m.at
		}
	}
	return at
}

// moments lists the records of a session's history with their times.
func (l *Loader) moments(ctx context.Context, s *Session) ([]moment, error) {
	var list []moment
	types := MoveTypes()
	var kept blobs
	for rec, err := range l.Records(ctx, s) {
		changes := err == nil && slices.Contains(types, rec.Type)
		if changes {
			if rec, err = kept.resolve(ctx, l.Source, rec, l.maxValue()); events.IsDamage(err) {
				err = nil // its turns cannot be read and contribute no time
			}
		}
		if err != nil {
			return nil, err
		}
		at := cmp.Or(rec.Time, rec.Recorded)
		if changes {
			at = Decode(rec).Shown()
		}
		list = append(list, moment{rec.Offset, at, changes})
	}
	return list, nil
}
