package shape

import (
	"math"
	"strconv"
	"strings"
)

// EventName is the name of an event's file, without .json. Nothing in it is escaped: a type
// may have a slash.
func EventName(timestamp, step int64, typ string) string {
	return "event-" + itoa(timestamp) + "-" + itoa(step) + "-" + typ
}

// EventMeta is what the name of an event's file says. Timestamp and Step are NaN where
// there is no number, as in the original.
type EventMeta struct {
	Timestamp float64
	Step      float64
	Type      string
}

// ParseEventName reads the name of an event's file as the original's functions do: the text
// before the first dot, of it the fourth token as type. A name without a number is there
// nevertheless. A name that does not begin with event- is of no event.
func ParseEventName(name string) (EventMeta, bool) {
	if !strings.HasPrefix(name, "event-") {
		return EventMeta{}, false
	}
	name, _, _ = strings.Cut(name, ".")
	tokens := append(strings.Split(name, "-"), "", "", "")
	return EventMeta{numberOf(tokens[1]), numberOf(tokens[2]), tokens[3]}, true
}

// ParseEventNameStrict reads it as the original's class does: the type is the rest, with
// its dashes, and a name without numbers is left out.
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
