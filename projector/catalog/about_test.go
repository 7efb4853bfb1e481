package catalog

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/projector"
)

// What a session is about: its title, else its goal, else what a user said first, each
// for as long as there is one. A goal is kept in one line of at most 200 bytes, between
// two characters.
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
