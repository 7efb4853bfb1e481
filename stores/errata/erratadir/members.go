package erratadir

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
)

// The order in which the writer of the files writes their members.
var (
	metadataOrder = []string{"id", "created_at", "last_active_at", "models", "first_prompt", "last_prompt", "prompt_count", "config_hash", "runs"}
	contentOrder  = []string{"session_id", "runs", "histories"}
	summaryOrder  = []string{"timestamp", "prompt_hash", "prompt_preview", "models", "selected", "rating", "type", "latencies_ms", "costs_usd",
		"input_tokens", "output_tokens", "tool_calls", "proposed_writes_count", "applied_files", "config_hash", "note"}
)

// goString appends a string as Go's encoder spells it.
func goString(dst []byte, s string) []byte {
	text, err := json.Marshal(s)
	if err != nil {
		panic("errata: a string cannot be written: " + err.Error())
	}
	return append(dst, text...)
}

// appendMembers appends an object.
func appendMembers(dst []byte, m rawjson.Members) []byte {
	dst = append(dst, '{')
	for i, member := range m {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(append(goString(dst, member.Name), ':'), member.Value...)
	}
	return append(dst, '}')
}

// appendArray appends an array.
func appendArray[T ~[]byte](dst []byte, list []T) []byte {
	dst = append(dst, '[')
	for i, raw := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, raw...)
	}
	return append(dst, ']')
}

// with gives an object in which a member has another value. A member that was not
// there comes to its place in the order.
func with(m rawjson.Members, order []string, name string, value events.Raw) rawjson.Members {
	m = slices.Clone(m)
	for i := range m {
		if m[i].Name == name {
			m[i].Value = value
			return m
		}
	}
	rank := slices.Index(order, name)
	at := len(m)
	for i := range m {
		if slices.Index(order, m[i].Name) > rank {
			at = i
			break
		}
	}
	return slices.Insert(m, at, rawjson.Member{Name: name, Value: value})
}

// object gives the members of a value, nil if it is no object.
func object(raw events.Raw) rawjson.Members {
	m, err := rawjson.Object(raw)
	if err != nil {
		return nil
	}
	return m
}

// text gives a member that is a string, "" if it is none.
func text(m rawjson.Members, name string) string {
	raw, ok := m.Get(name)
	if !ok {
		return ""
	}
	s, err := rawjson.String(raw)
	if err != nil {
		return ""
	}
	return s
}

// texts gives the strings of a member that is an array.
func texts(m rawjson.Members, name string) []string {
	raw, _ := m.Get(name)
	list, err := rawjson.Array(raw)
	if err != nil {
		return nil
	}
	var out []string
	for _, raw := range list {
		if s, err := rawjson.String(raw); err == nil {
			out = append(out, s)
		}
	}
	return out
}

// isList reports whether a member is absent, null or an array, and gives its
// elements.
func isList(m rawjson.Members, name string) ([]events.Raw, bool) {
	raw, ok := m.Get(name)
	if !ok || string(raw) == "null" {
		return nil, true
	}
	list, err := rawjson.Array(raw)
	return list, err == nil
}

// validTime gives a member that is a time, "" if it is none.
func validTime(m rawjson.Members, name string) events.Timestamp {
	at := events.Timestamp(text(m, name))
	if _, ok := at.Time(); !ok {
		return ""
	}
	return at
}

// emptied gives an array without its elements: null stays null.
func emptied(raw events.Raw) events.Raw {
	if bytes.HasPrefix(raw, []byte("[")) {
		return events.Raw("[]")
	}
	return raw
}
