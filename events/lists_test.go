package events_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
)

func TestFill(t *testing.T) {
	turns := func(p events.Piece) (list []events.Raw, err error) {
		for i := p.From; i < p.To; i++ {
			list = append(list, events.Raw(fmt.Sprintf(`{"t": "%s%d"}`, p.Thread, i)))
		}
		return list, nil
	}
	lists := events.Lists{"/z": {{Thread: "a", To: 2}, {Thread: "b", From: 4, To: 5}}, "/b/0": {{Thread: "c", From: 1, To: 2}}, "/b/1": {}, "/b/2": {{Thread: "d", To: 1}}}
	const raw = `{ "z":[],"n": 1.0, "b":[[],[],[]] }`
	const want = `{ "z":[{"t": "a0"},{"t": "a1"},{"t": "b4"}],"n": 1.0, "b":[[{"t": "c1"}],[],[{"t": "d0"}]] }`
	if got, err := lists.Fill(events.Raw(raw), events.MaxValue, turns); err != nil || string(got) != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
	whole := events.Lists{"": {{Thread: "a", To: 1}}}
	if got, err := whole.Fill(events.Raw(`[]`), events.MaxValue, turns); err != nil || string(got) != `[{"t": "a0"}]` {
		t.Errorf("whole value: got %s, %v", got, err)
	}
	one := events.Lists{"/m": {{Thread: "a", From: 3, To: 4}}}
	if got, err := one.Fill(events.Raw(`{"m":null,"n":[]}`), events.MaxValue, turns); err != nil || string(got) != `{"m":{"t": "a3"},"n":[]}` {
		t.Errorf("single turn: got %s, %v", got, err)
	}
	for _, pieces := range [][]events.Piece{{}, {{Thread: "a", To: 2}}, {{Thread: "a", To: 1}, {Thread: "b", To: 1}}} {
		p := &events.CheckpointSaved{ID: "c", Kind: events.CheckpointStep, Raw: events.Raw(`{"m":null}`), Lists: events.Lists{"/m": pieces}}
		if err := p.Validate(); err == nil {
			t.Errorf("Validate accepted null for %v", pieces)
		}
		if _, err := p.Lists.Fill(p.Raw, events.MaxValue, turns); err == nil {
			t.Errorf("Fill replaced null by %v", pieces)
		}
	}
	away := errors.New("away")
	if _, err := lists.Fill(events.Raw(raw), events.MaxValue, func(events.Piece) ([]events.Raw, error) { return nil, away }); err != away {
		t.Errorf("got %v, want the error of turns", err)
	}
	if _, err := lists.Fill(events.Raw(`{"z":[]}`), events.MaxValue, turns); err == nil {
		t.Error("Fill accepted a pointer without a value")
	}
}

// Fill accepts all lists that Decode accepts. The result is JSON, and without turns it is the stored value.
func FuzzLists(f *testing.F) {
	f.Add([]byte(`{"run":{"kind":"k","id":"r"},"raw":{"a":[[]],"b":[]},"lists":{"/a/0":[{"thread":"m","to":2}],"/b":[]}}`))
	f.Add([]byte(`{"run":{"kind":"k","id":"r"},"raw": [] ,"lists":{"":[{"thread":"m","from":3,"to":4}]}}`))
	f.Add([]byte(`{"run":{"kind":"k","id":"r"},"raw":{"m":null},"lists":{"/m":[{"thread":"m","from":3,"to":4}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := events.Decode(events.TypeRunStarted, data)
		if err != nil {
			return
		}
		s := p.(*events.RunStarted)
		if len(s.Lists) == 0 {
			return
		}
		whole, err := s.Lists.Fill(s.Raw, events.MaxValue, func(p events.Piece) ([]events.Raw, error) {
			return []events.Raw{events.Raw(`"x"`)}[:min(p.To-p.From, 1)], nil
		})
		if err != nil || rawjson.Check(whole) != nil {
			t.Fatalf("%s: got %s, which is not JSON, or error %v", data, whole, err)
		}
		if bytes.Contains(s.Raw, []byte("null")) {
			return
		}
		empty, err := s.Lists.Fill(s.Raw, events.MaxValue, func(events.Piece) ([]events.Raw, error) { return nil, nil })
		if err != nil || string(empty) != string(s.Raw) {
			t.Fatalf("%s: filled without turns: got %s, %v, want it unchanged", data, empty, err)
		}
	})
}

func TestKindOf(t *testing.T) {
	for id, want := range map[string]string{
		"item/q/1": "item", "queue/q": "queue", "inbox/": "inbox", "job/42": "job", "history/h": "history", "agent/a": "agent", "flow/f": "flow", "lock/doc/x": "lock",
		"item": "conversation", "items/1": "conversation", "Item/1": "conversation", "s1": "conversation", "/item/1": "conversation", "": "conversation",
		"conversation/x": "conversation", "claude/p/1": "conversation", "panel/1": "conversation", "prompts/1": "conversation",
	} {
		if got := events.KindOf(id); got != want {
			t.Errorf("KindOf(%q) = %s, want %s", id, got, want)
		}
	}
	for kind, want := range map[string]bool{"inbox": false, "queue": false, "item": false, "flow": false, "lock": false, "conversation": true, "panel": true, "agent": true, "job": true, "prompts": true, "": true, "mine": true} {
		if events.CanRewind(kind) != want {
			t.Errorf("CanRewind(%q) = %v", kind, !want)
		}
	}
}

func TestItemMeta(t *testing.T) {
	m, err := events.ItemMetaOf(events.Raw(`{"id":"i","owner":"o","dueAt":"2026-03-01T12:00:00Z","after":["a","b"],"priority":9,"more":[1]}`))
	if err != nil || m.ID != "i" || m.Owner != "o" || m.DueAt == "" || len(m.After) != 2 || m.Priority != 9 || len(m.Unknown) != 1 {
		t.Errorf("ItemMetaOf = %+v, %v, want all fields", m, err)
	}
	for meta, field := range map[string]string{
		`{}`: "data.meta.id", `{"id":""}`: "data.meta.id", `{"id":1}`: "data.meta.id", `{"id":"i","priority":10}`: "data.meta.priority", `{"id":"i","priority":-1}`: "data.meta.priority",
		`{"id":"i","dueAt":"soon"}`: "data.meta.dueAt", `{"id":"i","after":[""]}`: "data.meta.after[0]", `{"id":"i","after":"a"}`: "data.meta.after", `[]`: "data.meta", ``: "data.meta",
	} {
		_, err := events.ItemMetaOf(events.Raw(meta))
		mustBeInvalid(t, meta, err, field)
	}
}

func TestLineMeta(t *testing.T) {
	m, err := events.LineMetaOf(events.Raw(`{"eol":"\r\n","before":" \n","redacted":2,"more":1}`))
	if err != nil || m.EOL == nil || *m.EOL != "\r\n" || m.Before != " \n" || m.Redacted != 2 || len(m.Unknown) != 1 {
		t.Errorf("LineMetaOf = %+v, %v, want all fields", m, err)
	}
	if m, err := events.LineMetaOf(events.Raw(`{"eol":""}`)); err != nil || m.EOL == nil || *m.EOL != "" {
		t.Errorf("empty line ending: got %+v, %v", m, err)
	}
	if m, err := events.LineMetaOf(nil); err != nil || m.EOL != nil {
		t.Errorf("LineMetaOf without meta = %+v, %v, want the zero LineMeta", m, err)
	}
	for meta, field := range map[string]string{`{"redacted":-1}`: "data.meta.redacted", `{"eol":1}`: "data.meta.eol", `"x"`: "data.meta"} {
		_, err := events.LineMetaOf(events.Raw(meta))
		mustBeInvalid(t, meta, err, field)
	}
}
