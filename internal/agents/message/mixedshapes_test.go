package message_test

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// A mixer makes turns that no maker documents from those they do: it exchanges values and renames members.
type mixer struct {
	turns, values []string // JSON
	names         []string
}

func newMixer(t *testing.T) *mixer {
	m := &mixer{}
	names := make(map[string]bool)
	var visit func(v any)
	visit = func(v any) {
		raw, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		m.values = append(m.values, string(raw))
		switch v := v.(type) {
		case []any:
			for _, e := range v {
				visit(e)
			}
		case map[string]any:
			for name, e := range v {
				names[name] = true
				visit(e)
			}
		}
	}
	for _, e := range examples(t) {
		var v any
		if err := json.Unmarshal([]byte(e.turn), &v); err != nil {
			t.Fatalf("%s/%s: %v", e.file, e.name, err)
		}
		m.turns = append(m.turns, e.turn)
		visit(v)
	}
	slices.Sort(m.values)
	m.names = slices.Sorted(maps.Keys(names))
	return m
}

func decode(raw string) (v any) {
	if err := json.Unmarshal([]byte(raw), &v); err != nil {
		panic(err)
	}
	return v
}

func (m *mixer) value(t *rapid.T) any {
	if rapid.IntRange(0, 3).Draw(t, "new") == 0 {
		return rapid.SampledFrom([]string{"words of its own", `{"in": "JSON"}`, "error", "text"}).Draw(t, "text")
	}
	return decode(rapid.SampledFrom(m.values).Draw(t, "value"))
}

// change changes one thing somewhere in a value.
func (m *mixer) change(t *rapid.T, v any) any {
	down := rapid.IntRange(0, 5).Draw(t, "down") > 0
	switch v := v.(type) {
	case []any:
		if len(v) > 0 && down {
			i := rapid.IntRange(0, len(v)-1).Draw(t, "element")
			v[i] = m.change(t, v[i])
			return v
		}
		return append(v, m.value(t))
	case map[string]any:
		if len(v) > 0 && down {
			name := rapid.SampledFrom(slices.Sorted(maps.Keys(v))).Draw(t, "member")
			v[name] = m.change(t, v[name])
			return v
		}
		name := rapid.SampledFrom(m.names).Draw(t, "name")
		v[name] = m.value(t)
		return v
	}
	return m.value(t)
}

// No text is lost from undocumented turns either, and nothing panics.
func TestNothingIsLostOfMixedShapes(t *testing.T) {
	m := newMixer(t)
	rapid.Check(t, func(rt *rapid.T) {
		v := decode(rapid.SampledFrom(m.turns).Draw(rt, "turn"))
		for range rapid.IntRange(1, 6).Draw(rt, "changes") {
			v = m.change(rt, v)
		}
		raw, err := json.Marshal(v)
		if err != nil {
			rt.Fatal(err)
		}
		check(rt, raw)
	})
}
