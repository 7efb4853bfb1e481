package log

import (
	"strings"
	"time"
)

// headerRecorded is the header of a copied record with the time at which the original was recorded.
const headerRecorded = "Tally-Recorded"

// recorded returns when a message was recorded: for a copy the time of its original, unless that is later than the
// server's own. A malformed time does not count.
func (m Message) recorded() time.Time {
	value := ""
	switch {
	case m.wire == "":
		value = m.field(headerRecorded)
	case strings.Contains(m.wire, headerRecorded):
		value = m.ownRecorded()
	}
	if value == "" {
		return m.Time
	}
	if at, err := time.Parse(time.RFC3339Nano, value); err == nil && !at.After(m.Time) {
		return at.UTC()
	}
	return m.Time
}

// ownRecorded returns the value of the header as Mirror writes it, else as the NATS client parses it, which costs as much
// as to decode the event.
func (m Message) ownRecorded() string {
	const line = "\r\n" + headerRecorded + ": "
	_, rest, found := strings.Cut(m.wire, line)
	value, _, _ := strings.Cut(rest, "\r\n")
	if !found || strings.Count(m.wire, headerRecorded) > 1 || value != strings.TrimSpace(value) {
		return m.field(headerRecorded)
	}
	return value
}
