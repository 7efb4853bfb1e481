package render_test

import (
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/projector"
)

func TestOpening(t *testing.T) {
	entry := func(thread, raw string) events.Entry {
		return events.Entry{Thread: thread, Turn: events.Raw(raw)}
	}
	asks := `{"role":"user","content":"\n \t\nHow  do I\tbake?\nand then"}`
	for _, c := range []struct {
		p    events.Payload
		want string
	}{
		{&events.TurnAppended{Entries: []events.Entry{entry("main", asks)}}, "How do I bake?"},
		{&events.TurnAppended{Entries: []events.Entry{entry("a", `{"role":"user","content":"A"}`), entry("main", asks)}}, "How do I bake?"},
		{&events.TurnAppended{Entries: []events.Entry{entry("main", `{"role":"system","content":"You"}`), entry("main", `{"role":"assistant","content":"Hi"}`), entry("z", `{"Role":"User","Content":"Z"}`)}}, "Z"},
		{&events.TurnAppended{Entries: []events.Entry{entry("main", `{"input":{"role":"user","content":[{"type":"image"},{"type":"text","text":"look"}]},"output":[]}`)}}, "look"},
		{&events.TurnAppended{Entries: []events.Entry{entry("main", `"plain"`)}}, "plain"},
		{&events.TurnAppended{Entries: []events.Entry{entry("main", `{"a":1}`), {Thread: "main", Bytes: []byte("x")}}}, ""},
		{&events.ThreadReplaced{Threads: map[string]events.Replacement{"main": {Items: []events.Item{{Turn: events.Raw(asks)}}}}, Others: "keep", Reason: "save"}, "How do I bake?"},
		{&events.RunFinished{Run: events.RunRef{Kind: "panel", ID: "r"}, Outcome: "completed", Result: events.Raw(`{"content":{"prompt":"compare\nthem"}}`)}, "compare"},
		{&events.RunFinished{Run: events.RunRef{Kind: "tally", ID: "r"}, Outcome: "completed", Result: events.Raw(`[]`)}, ""},
		{&events.SessionCreated{Kind: "conversation", CreatedAt: "2026-01-01T00:00:00Z", Title: "T"}, ""},
	} {
		e, err := events.New("urn:test", events.Session("", "s"), c.p)
		if err != nil {
			t.Fatal(err)
		}
		if have := render.Opening(projector.Decode(events.Record{Event: e, Offset: 1})); have != c.want {
			t.Errorf("%s %s: %q, want %q", e.Type, e.Data, have, c.want)
		}
	}
}
