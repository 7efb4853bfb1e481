package events

import (
	"strings"
	"time"
)

// formatTime returns a time in the form of attributes. RFC 3339 has no zones with seconds: such a time is written in
// UTC.
func formatTime(t time.Time) string {
	if _, offset := t.Zone(); offset%60 != 0 || offset <= -24*3600 || offset >= 24*3600 {
		t = t.UTC()
	}
	return t.Format(time.RFC3339Nano)
}

// parseTime parses a time of an attribute. It is as strict as RFC 3339 (package time is not), and the result does not
// depend on the machine's zone.
func parseTime(s string) (time.Time, error) {
	if isRFC3339(s) {
		if t, err := time.ParseInLocation(time.RFC3339Nano, s, time.UTC); err == nil {
			return t, nil
		}
	}
	return time.Time{}, invalid("time", "%q is not an RFC 3339 time", s)
}

// isRFC3339 checks the form of a time: 2006-01-02T15:04:05, an optional fraction, and Z or a zone below 24 hours.
func isRFC3339(s string) bool {
	if len(s) < len("2006-01-02T15:04:05Z") || !hasShape(s[:19], "0000-00-00T00:00:00") {
		return false
	}
	zone := s[19:]
	if zone[0] == '.' {
		zone = strings.TrimLeft(zone[1:], "0123456789")
		if len(zone) == len(s)-20 {
			return false // a point without digits
		}
	}
	if zone == "Z" {
		return true
	}
	return hasShape(zone, "+00:00") && zone[1:3] < "24" && zone[4:6] < "60"
}

// hasShape compares s with a pattern in which 0 is any digit and + also a minus.
func hasShape(s, pattern string) bool {
	if len(s) != len(pattern) {
		return false
	}
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case pattern[i] == '0' && '0' <= c && c <= '9', pattern[i] == '+' && c == '-', c == pattern[i]:
		default:
			return false
		}
	}
	return true
}
