package catalog

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/projector"
)

// textOf extracts the tests' turns: a JSON string, optionally with the speaker in front.
func textOf(t projector.Turn) projector.Said {
	text, err := rawjson.String(t.Raw)
	if err != nil {
		return projector.Said{Roles: "user", Text: string(t.Raw)}
	}
	if role, rest, ok := strings.Cut(text, "|"); ok {
		return projector.Said{Roles: role + " tool", Text: rest}
	}
	return projector.Said{Roles: "user", Text: text}
}

// turnsOf returns a log with one turn for each text, in a session.
func turnsOf(t *testing.T, sub events.Subject, texts ...string) testkit.Records {
	t.Helper()
	var list testkit.Records
	for i, text := range texts {
		list = append(list, record(t, sub, events.Offset(i+1), &events.TurnAppended{Entries: []events.Entry{{Thread: "main", Turn: quoted(t, text)}}}))
	}
	return list
}

func quoted(t *testing.T, text string) events.Raw {
	t.Helper()
	raw, err := rawjson.Marshal(text)
	must(t, err)
	return raw
}

func record(t testing.TB, sub events.Subject, at events.Offset, p events.Payload) events.Record {
	t.Helper()
	e, err := events.New("urn:test", sub, p)
	if err != nil {
		t.Fatal(err)
	}
	e.ID = fmt.Sprintf("event-%d", at)
	return events.Record{Event: e, Offset: at}
}

// Cut shortens a text to a number of bytes, between two characters.
func TestCut(t *testing.T) {
	for _, c := range []struct {
		text  string
		limit int
		want  string
	}{{"abc", 3, "abc"}, {"abcd", 3, "abc"}, {"aé", 2, "a"}, {"é", 1, ""}} {
		if got := projector.Cut(c.text, c.limit); got != c.want {
			t.Errorf("Cut(%q, %d) is %q", c.text, c.limit, got)
		}
	}
}

// The turns of a session that was in quarantine come after all others. That is not a difference; an altered turn is.
func TestTurnsThatCameLate(t *testing.T) {
	a, b := events.Session("", "a"), events.Session("", "b")
	var records []events.Record
	for at := events.Offset(1); at <= 20; at++ {
		sub := a
		if at%2 == 0 {
			sub = b
		}
		records = append(records, record(t, sub, at, &events.TurnAppended{Entries: []events.Entry{{Thread: "main", Turn: events.Raw(fmt.Sprintf(`"turn %d"`, at))}}}))
	}
	build := func(name string) *Search {
		s := newSearch(filepath.Join(t.TempDir(), name), current, textOf, nullLogger)
		t.Cleanup(func() { must(t, s.Close()) })
		_, _, err := s.Begin(t.Context())
		must(t, err)
		return s
	}
	apply := func(s *Search, only events.Subject) {
		for _, rec := range records {
			if only == (events.Subject{}) || rec.Subject == only {
				must(t, s.Apply(t.Context(), projector.Decode(rec)))
			}
		}
		must(t, s.Commit(t.Context(), projector.Cursor{Offset: 20, EventID: "event-20"}))
	}
	differ := func(have, want *Search) string {
		diff, err := difference(t.Context(), have.conn, want.conn, "turns", have.set, want.set)
		must(t, err)
		return diff
	}
	want, have := build("want"), build("have")
	apply(want, events.Subject{})
	apply(have, events.Subject{})
	must(t, have.Forget(t.Context(), a))
	apply(have, a)
	if diff := differ(have, want); diff != "" {
		t.Error(diff)
	}
	_, err := have.conn.ExecContext(t.Context(), "UPDATE turns"+have.set+" SET text='another' WHERE offset=7")
	must(t, err)
	if diff := differ(have, want); !strings.Contains(diff, "another") {
		t.Errorf("the difference for an altered turn is %q", diff)
	}
}
