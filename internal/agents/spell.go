package agents

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
)

// MaxID is the maximal length in bytes of ids and names that are taken from lines.
const MaxID = 256

// IsToken reports whether a text can be part of an id: at most 128 bytes of letters, digits and the given signs.
func IsToken(s, signs string) bool {
	for i := range len(s) {
		c := s[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte(signs, c) >= 0) {
			return false
		}
	}
	return 0 < len(s) && len(s) <= 128
}

// Spell returns the JSON of a value that contains only texts, numbers and parsed JSON.
func Spell(v any) json.RawMessage {
	raw, err := rawjson.Marshal(v)
	if err != nil {
		panic("agents: " + err.Error()) // such a value always has a JSON form
	}
	return raw
}

// ParseTime parses a time of the years 1 to 9999, which events can hold.
func ParseTime(text string) (time.Time, bool) {
	at, ok := events.Timestamp(text).Time()
	if year := at.UTC().Year(); !ok || year < 1 || year > 9999 {
		return time.Time{}, false
	}
	return at, true
}

// Stamp returns a time in the form of events, "" for the zero time.
func Stamp(at time.Time) events.Timestamp {
	if at.IsZero() {
		return ""
	}
	return events.TimestampOf(at)
}

// Titled returns the event that sets the title of a session. The title "" removes it.
func Titled(title string) *events.SessionUpdated {
	value := json.RawMessage("null")
	if title != "" {
		value = Spell(title)
	}
	return &events.SessionUpdated{Set: events.Fields{{Name: "title", Value: value}}}
}

// Models lists the models of a session in the order of their first messages.
type Models []string

// maxModels is the maximal number of remembered models of a session.
const maxModels = 64

// Add adds a model. It returns false if the model is known already, or if there are too many.
func (m *Models) Add(model string) bool {
	if slices.Contains(*m, model) || len(*m) == maxModels {
		return false
	}
	*m = append(*m, model)
	return true
}

// Field returns the field of a session that lists the models.
func (m Models) Field() events.Field { return events.Field{Name: "models", Value: Spell(m)} }
