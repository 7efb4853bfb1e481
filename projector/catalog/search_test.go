package catalog

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/projector"
)

// textOf says what the tests' turns say: their JSON.
func textOf(t projector.Turn) (roles, text string) { return "user", string(t.Raw) }

// turnsOf makes a log of one turn of each text, in a session.
func turnsOf(t *testing.T, sub events.Subject, texts ...string) testkit.Records {
	t.Helper()
	var list testkit.Records
	for i, text := range texts {
		list = append(list, record(t, sub, events.Offset(i+1), &events.TurnAppended{Entries: []events.Entry{{Thread: "main", Turn: events.Raw(fmt.Sprintf("%q", text))}}}))
	}
	return list
}

func record(t *testing.T, sub events.Subject, at events.Offset, p events.Payload) events.Record {
	t.Helper()
	e, err := events.New("urn:test", sub, p)
	if err != nil {
		t.Fatal(err)
	}
	e.ID = fmt.Sprintf("event-%d", at)
	return events.Record{Event: e, Offset: at}
}

// searched builds both views of a log and opens them.
func searched(t *testing.T, records testkit.Records) Finder {
	t.Helper()
	dir := t.TempDir()
	for _, v := range []interface {
		projector.View
		Close() error
	}{New(dir, nullLogger), NewSearch(dir, textOf, nullLogger)} {
		_, _, err := v.Begin(t.Context())
		must(t, err)
		for _, rec := range records {
			must(t, v.Apply(t.Context(), projector.Decode(rec)))
		}
		last := records[len(records)-1]
		must(t, v.Commit(t.Context(), projector.Cursor{Offset: last.Offset, EventID: last.ID}))
		must(t, v.Close())
	}
	list, err := Open(t.Context(), dir)
	must(t, err)
	t.Cleanup(func() { list.Close() })
	f, err := OpenSearch(t.Context(), dir, list)
	must(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

func TestFind(t *testing.T) {
	sub := events.Session("", "s")
	f := searched(t, turnsOf(t, sub, "Red cake and blue cake", "a blue house", "café NEAR the house", `"quoted" - AND (odd) * words`))
	for _, c := range []struct {
		text string
		want []int // offsets, the newest first
	}{
		{"blue", []int{2, 1}}, {"BLUE cake", []int{1}}, {`"blue cake"`, []int{1}}, {`"cake blue"`, nil}, {"cafe", []int{3}},
		{"near", []int{3}}, {"AND odd", []int{4}}, {"quoted", []int{4}}, {"(odd)", []int{4}}, {`house "a blue`, []int{2}}, {"nothing", nil},
	} {
		hits, err := f.Find(t.Context(), Lookup{Namespace: "default", Text: c.text})
		must(t, err)
		var got []int
		for _, h := range hits {
			got = append(got, int(h.Offset))
			if !h.Live || h.Session != "s" || !strings.Contains(h.Snippet, MatchBegin) {
				t.Errorf("%q: %+v", c.text, h)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%q finds %v, want %v", c.text, got, c.want)
		}
	}
	if _, err := f.Find(t.Context(), Lookup{Namespace: "default", Text: ` "" `}); !isInvalid(err) {
		t.Errorf("no words: %v", err)
	}
}

func isInvalid(err error) bool {
	_, ok := errors.AsType[*events.InvalidError](err)
	return ok
}

// What was rewound is found when asked for, and is said to be so.
func TestFindRewound(t *testing.T) {
	sub := events.Session("", "s")
	records := append(turnsOf(t, sub, "one word", "two word", "three word"), record(t, sub, 4, &events.SessionRewound{To: 1}))
	f := searched(t, records)
	for _, c := range []struct {
		all  bool
		want string
	}{{false, "[{1 true}]"}, {true, "[{3 false} {2 false} {1 true}]"}} {
		hits, err := f.Find(t.Context(), Lookup{Namespace: "default", Text: "word", All: c.all})
		must(t, err)
		type seen struct {
			at   int
			live bool
		}
		var got []seen
		for _, h := range hits {
			got = append(got, seen{int(h.Offset), h.Live})
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("all %v: %v, want %s", c.all, got, c.want)
		}
	}
}

func TestCut(t *testing.T) {
	for _, c := range []struct {
		text string
		most int
		want string
	}{{"abc", 3, "abc"}, {"abcd", 3, "abc"}, {"aé", 2, "a"}, {"é", 1, ""}} {
		if got := cut(c.text, c.most); got != c.want {
			t.Errorf("cut(%q, %d) is %q", c.text, c.most, got)
		}
	}
}

// A session that was in quarantine has its turns behind all others; that is no
// difference. That one of them is altered is.
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
		t.Errorf("an altered turn: %q", diff)
	}
}
