package catalog

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/projector"
)

// A session is described by its title, else its goal, else the first message of a user. A goal is stored as one line of
// at most 200 bytes, cut between two characters.
func TestAbout(t *testing.T) {
	sub := events.Session("", "s")
	set := func(name, value string) events.Payload {
		return &events.SessionUpdated{Set: events.Fields{{Name: name, Value: events.Raw(value)}}}
	}
	turn := &events.TurnAppended{Entries: []events.Entry{{Thread: "main", Turn: events.Raw(`"hello"`)}}}
	records := testkit.Records{}
	for i, step := range []struct {
		p    events.Payload
		want string
	}{
		{&events.SessionCreated{Kind: "conversation", CreatedAt: "2026-01-01T00:00:00Z"}, ""},
		{turn, `@2"hello"`},
		{set("trajectory", `{"goal":"a\n  trip"}`), "a trip"},
		{set("title", `"T"`), "T"},
		{turn, "T"},
		{set("title", "null"), "a trip"},
		{set("trajectory", fmt.Sprintf(`{"goal":"%s"}`, strings.Repeat("ä ", 200))), strings.TrimSpace(strings.Repeat("ä ", 66)) + " ä"},
		{set("trajectory", `{"goal":7}`), `@2"hello"`},
		{set("trajectory", `[]`), `@2"hello"`},
		{&events.SessionRewound{To: 1}, `@2"hello"`},
	} {
		records = append(records, record(t, sub, events.Offset(i+1), step.p))
		c := New(t.TempDir(), openingOf, nullLogger)
		_, _, err := c.Begin(t.Context())
		must(t, err)
		for _, rec := range records {
			must(t, c.Apply(t.Context(), projector.Decode(rec)))
		}
		s, err := c.session(t.Context(), sub)
		must(t, err)
		if s.About() != step.want || len(s.Goal) > 200 {
			t.Errorf("after %d: %q, want %q", i+1, s.About(), step.want)
		}
		must(t, c.Close())
	}
}

// In a transcript the conversation counts, but not the agent's log entries or its subagents.
func TestTranscript(t *testing.T) {
	sub := events.Session("", "codex/s")
	turn := func(thread, text string) events.Payload {
		return &events.TurnAppended{Entries: []events.Entry{{Thread: thread, Turn: events.Raw(`"` + text + `"`)}}}
	}
	models := func(value string) events.Payload {
		return &events.SessionUpdated{Set: events.Fields{{Name: "models", Value: events.Raw(value)}}}
	}
	c := New(t.TempDir(), openingOf, nullLogger)
	defer c.Close()
	_, _, err := c.Begin(t.Context())
	must(t, err)
	for i, step := range []struct {
		p             events.Payload
		turns, total  int
		about, models string
	}{
		{&events.SessionCreated{Kind: events.KindTranscript, CreatedAt: "2026-01-01T00:00:00Z"}, 0, 0, "", ""},
		{turn("log", "started"), 0, 0, "", ""},
		{turn("agent/1", "find"), 0, 0, "", ""},
		{turn("main", "hello"), 1, 1, `@4"hello"`, ""},
		{turn("log", "used"), 1, 1, `@4"hello"`, ""},
		{models(`["a","b"]`), 1, 1, `@4"hello"`, "a, b"},
		{turn("main", "and"), 2, 2, `@4"hello"`, "a, b"},
		{&events.ThreadReplaced{Threads: map[string]events.Replacement{"main": {Items: []events.Item{{Turn: events.Raw(`"new"`)}}}, "log": {}}, Others: "keep", Reason: "source"}, 1, 3, `@4"hello"`, "a, b"},
		{&events.SessionRewound{To: 5}, 1, 3, `@4"hello"`, "a, b"},
		{models(`["a",""]`), 1, 3, `@4"hello"`, "a"},
		{models(`null`), 1, 3, `@4"hello"`, ""},
	} {
		must(t, c.Apply(t.Context(), projector.Decode(record(t, sub, events.Offset(i+1), step.p))))
		s, err := c.session(t.Context(), sub)
		must(t, err)
		must(t, s.settle())
		if s.Turns != step.turns || s.TotalTurns != step.total || s.About() != step.about || s.Models != step.models {
			t.Errorf("after %d: %d turns of %d, %q, %q; want %+v", i+1, s.Turns, s.TotalTurns, s.About(), s.Models, step)
		}
	}
}
