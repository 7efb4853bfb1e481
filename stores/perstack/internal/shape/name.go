package shape

import (
	"math"
	"strconv"
	"strings"
)

// EventName returns the name of an event's file, without .json. It escapes nothing: a type may contain a slash.
func EventName(timestamp, step int64, typ string) string {
	return "event-" + itoa(timestamp) + "-" + itoa(step) + "-" + typ
}

// EventMeta is the metadata in the name of an event's file. As in the original, Timestamp and Step are NaN if the name
// has no number there.
type EventMeta struct {
	Timestamp float64
	Step      float64
	Type      string
}

// ParseEventName parses the name of an event's file as the original's functions do: the text before the first dot, with
// the third token as type. Missing numbers are accepted. It returns false if the name does not begin with event-.
func ParseEventName(name string) (EventMeta, bool) {
	if !strings.HasPrefix(name, "event-") {
		return EventMeta{}, false
	}
	name, _, _ = strings.Cut(name, ".")
	tokens := append(strings.Split(name, "-"), "", "", "")
	return EventMeta{numberOf(tokens[1]), numberOf(tokens[2]), tokens[3]}, true
}

// ParseEventNameStrict parses the name as the original's class does: the type is the rest, with its dashes. It returns
// false for a name without numbers.
func ParseEventNameStrict(name string) (EventMeta, bool) {
	rest, ok := strings.CutPrefix(strings.TrimSuffix(name, ".json"), "event-")
	tokens := strings.SplitN(rest, "-", 3)
	if !ok || len(tokens) < 3 {
		return EventMeta{}, false
	}
	m := EventMeta{numberOf(tokens[0]), numberOf(tokens[1]), tokens[2]}
	return m, !math.IsNaN(m.Timestamp) && !math.IsNaN(m.Step)
}

func numberOf(token string) float64 {
	if token == "" || strings.Trim(token, "0123456789") != "" {
		return math.NaN()
	}
	n, err := strconv.ParseFloat(token, 64)
	if err != nil {
		return math.NaN()
	}
	return n
}
