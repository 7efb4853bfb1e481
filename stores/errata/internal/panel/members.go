package panel

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
)

// The order of members in the original's files.
var (
	MetadataOrder = []string{"id", "created_at", "last_active_at", "models", "first_prompt", "last_prompt", "prompt_count", "config_hash", "runs"}
	ContentOrder  = []string{"session_id", "runs", "histories"}
	SummaryOrder  = []string{"timestamp", "prompt_hash", "prompt_preview", "models", "selected", "rating", "type", "latencies_ms", "costs_usd",
		"input_tokens", "output_tokens", "tool_calls", "proposed_writes_count", "applied_files", "config_hash", "note"}
)

// JSON returns a value in the original's spelling, with HTML escapes. Only a NaN could fail, and callers refuse it
// before.
func JSON(v any) events.Raw {
	data, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("panel: %v", err))
	}
	return data
}

// ObjectJSON returns an object with its values as they are.
func ObjectJSON(m rawjson.Members) events.Raw {
	dst := []byte{'{'}
	for i, member := range m {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(append(append(dst, JSON(member.Name)...), ':'), member.Value...)
	}
	return append(dst, '}')
}

// With returns an object with a member set. A new member is inserted at its position in the order.
func With(m rawjson.Members, order []string, name string, value events.Raw) rawjson.Members {
	m = slices.Clone(m)
	if i := slices.IndexFunc(m, func(x rawjson.Member) bool { return x.Name == name }); i >= 0 {
		m[i].Value = value
		return m
	}
	rank := slices.Index(order, name)
	at := slices.IndexFunc(m, func(x rawjson.Member) bool { return slices.Index(order, x.Name) > rank })
	if at < 0 {
		at = len(m)
	}
	return slices.Insert(m, at, rawjson.Member{Name: name, Value: value})
}

// Object returns the members of a value, nil if it is not an object.
func Object(raw events.Raw) rawjson.Members {
	m, _ := rawjson.Object(raw)
	return m
}

// Texts returns the strings of a member that is an array.
func Texts(m rawjson.Members, name string) []string {
	list, _ := List(m, name)
	var out []string
	for _, raw := range list {
		if s, err := rawjson.String(raw); err == nil {
			out = append(out, s)
		}
	}
	return out
}

// List returns the elements of a member, and whether it is absent, null or an array.
func List(m rawjson.Members, name string) ([]events.Raw, bool) {
	raw, ok := m.Get(name)
	if !ok || string(raw) == "null" {
		return nil, true
	}
	list, err := rawjson.Array(raw)
	return list, err == nil
}

// Time returns a member that is a time, "" if it is not one.
func Time(m rawjson.Members, name string) events.Timestamp {
	at := events.Timestamp(m.Text(name))
	if _, ok := at.Time(); !ok {
		return ""
	}
	return at
}

// Emptied returns an array without its elements; null stays null.
func Emptied(raw events.Raw) events.Raw {
	if bytes.HasPrefix(raw, []byte("[")) {
		return events.Raw("[]")
	}
	return raw
}
