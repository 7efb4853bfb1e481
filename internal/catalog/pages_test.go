package catalog

import (
	"fmt"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/projector"
)

// A search of a namespace finds only its own turns, even if another namespace has the same words and session ids.
func TestFindInNamespace(t *testing.T) {
	here, there, other := events.Session("", "s"), events.Session("other", "s"), events.Session("other", "o")
	records := turnsOf(t, here, "a word of ours")
	for i, sub := range []events.Subject{there, other} {
		p := &events.TurnAppended{Entries: []events.Entry{{Thread: "main", Turn: events.Raw(`"a word of theirs"`)}}}
		records = append(records, record(t, sub, events.Offset(i+2), p))
	}
	f := searched(t, records)
	for _, c := range []struct {
		lookup Lookup
		want   string
	}{
		{Lookup{Namespace: "default", Text: "word"}, "[s@1]"},
		{Lookup{Namespace: "other", Text: "word"}, "[o@3 s@2]"},
		{Lookup{Namespace: "default", Text: "word", Session: "s"}, "[s@1]"},
		{Lookup{Namespace: "other", Text: "word", Session: "s"}, "[s@2]"},
		{Lookup{Namespace: "other", Text: "ours", All: true}, "[]"},
		{Lookup{Namespace: "third", Text: "word", All: true}, "[]"},
		{Lookup{Text: "word", All: true}, "[]"}, // no name means the unnamed namespace, not all
	} {
		found, err := f.Find(t.Context(), c.lookup)
		must(t, err)
		got := []string{}
		for _, h := range found.Hits {
			got = append(got, fmt.Sprint(h.Session, h.Offset))
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("%+v finds %v, want %s", c.lookup, got, c.want)
		}
	}
}

// With sessions of equal cost, turns, records and times, pages of any size list each once, in the order of the whole
// list.
func TestPagesOfEquals(t *testing.T) {
	dir := t.TempDir()
	var records testkit.Records
	for i, id := range []string{"c", "a", "d", "b", "e"} {
		sub, at := events.Session("", id), events.Offset(3*i)
		records = append(records,
			record(t, sub, at+1, &events.SessionCreated{Kind: events.KindConversation, CreatedAt: "2026-01-01T00:00:00Z"}),
			record(t, sub, at+2, &events.TurnAppended{Entries: []events.Entry{{Thread: "main", Turn: events.Raw(`1`)}}}),
			record(t, sub, at+3, &events.CostAccrued{Model: "m", USD: "0.25", Purpose: "run", Source: "reported"}))
	}
	c := New(dir, openingOf, nullLogger)
	beginAt(t, c, 0)
	must(t, putAll(t, c, records))
	must(t, c.Close())
	r, err := Open(t.Context(), dir)
	must(t, err)
	defer r.Close()
	names := func(p Page) (ids []string) {
		for _, s := range p.Sessions {
			ids = append(ids, s.ID)
		}
		return ids
	}
	for _, order := range []Order{ByHead, ByActive, ByCreated, ByTurns, ByRecords, ByID} {
		whole, err := r.List(t.Context(), Query{Namespace: "default", Sort: order})
		must(t, err)
		if len(whole.Sessions) != 5 {
			t.Fatalf("%s: got %v", order, names(whole))
		}
		for limit := 1; limit <= 5; limit++ {
			var got []string
			q := Query{Namespace: "default", Sort: order, Limit: limit}
			for page := 0; page == 0 || q.After != "" && page < 6; page++ {
				p, err := r.List(t.Context(), q)
				must(t, err)
				got, q.After = append(got, names(p)...), p.Next
			}
			if fmt.Sprint(got) != fmt.Sprint(names(whole)) {
				t.Errorf("%s, pages of %d: %v, want %v", order, limit, got, names(whole))
			}
		}
	}
}

// A turn that is not in the catalog yet counts as live. It is found in sessions with and without a row in the catalog.
func TestFindNewerThanCatalog(t *testing.T) {
	sub := events.Session("", "s")
	records := append(turnsOf(t, sub, "word one", "word two", "word three"), record(t, sub, 4, &events.SessionRewound{To: 2}))
	newer := append(records[:4:4], record(t, sub, 5, &events.TurnAppended{Entries: []events.Entry{{Thread: "main", Turn: events.Raw(`"word five"`)}}}),
		record(t, events.Session("", "unknown"), 6, &events.TurnAppended{Entries: []events.Entry{{Thread: "main", Turn: events.Raw(`"word six"`)}}}))
	dir := t.TempDir()
	list, search := New(dir, openingOf, nullLogger), NewSearch(dir, textOf, nullLogger)
	beginAt(t, list, 0)
	must(t, putAll(t, list, records))
	must(t, list.Close())
	_, _, err := search.Begin(t.Context())
	must(t, err)
	searchAll(t, search, newer)
	must(t, search.Commit(t.Context(), projector.Cursor{Offset: 6, EventID: "event-6"}))
	must(t, search.Close())

	r, err := Open(t.Context(), dir)
	must(t, err)
	defer r.Close()
	f, err := OpenSearch(t.Context(), dir, r)
	must(t, err)
	defer f.Close()
	found, err := f.Find(t.Context(), Lookup{Namespace: "default", Text: "word"})
	must(t, err)
	var got []events.Offset
	for _, h := range found.Hits {
		got = append(got, h.Offset)
	}
	if want := "[@6 @5 @2 @1]"; fmt.Sprint(got) != want {
		t.Errorf("the records in effect are %v, want %s", got, want)
	}
}

func searchAll(t *testing.T, s *Search, records testkit.Records) {
	t.Helper()
	for _, rec := range records {
		must(t, s.Apply(t.Context(), projector.Decode(rec)))
	}
}

// The uncommitted changes of a quarantined subject are not stored. Its row, runs, costs, history, turns in search, and
// a document stay as before the batch.
func TestQuarantineTakesBack(t *testing.T) {
	good, bad, fresh := events.Session("", "good"), events.Session("", "bad"), events.Session("", "fresh")
	doc := events.Document("", "recipe", "bad")
	turn := func(text string) events.Payload {
		return &events.TurnAppended{Entries: []events.Entry{{Thread: "main", Turn: events.Raw(fmt.Sprintf("%q", text))}}}
	}
	run := events.RunRef{Kind: "tally", ID: "r"}
	cost := &events.CostAccrued{Model: "m", USD: "0.25", Purpose: "run", Source: "reported"}
	before := testkit.Records{
		record(t, good, 1, turn("word one")), record(t, bad, 2, turn("word two")),
		record(t, bad, 3, &events.RunCreated{Run: run}), record(t, bad, 4, cost),
		written(doc, 5, "one"),
	}
	batch := testkit.Records{
		record(t, bad, 6, turn("word six")), record(t, good, 7, turn("word seven")),
		record(t, bad, 8, &events.RunStarted{Run: run}), record(t, bad, 9, cost),
		record(t, fresh, 10, turn("word ten")),
		written(doc, 11, "two and more"),
	}
	goodOnly := batch.Of(good)
	aside := []events.Subject{bad, fresh, doc}

	want, have := New(t.TempDir(), openingOf, nullLogger), New(t.TempDir(), openingOf, nullLogger)
	defer want.Close()
	defer have.Close()
	wantText, haveText := NewSearch(t.TempDir(), textOf, nullLogger), NewSearch(t.TempDir(), textOf, nullLogger)
	defer wantText.Close()
	defer haveText.Close()
	for _, v := range []projector.View{want, have, wantText, haveText} {
		_, _, err := v.Begin(t.Context())
		must(t, err)
		play(t, v, before, nil, 5)
	}
	for _, v := range []projector.View{want, wantText} {
		play(t, v, goodOnly, aside, 11)
	}
	for _, v := range []projector.View{have, haveText} {
		play(t, v, batch, aside, 11)
	}
	for _, table := range catalogForm.tables {
		diff, err := difference(t.Context(), have.conn, want.conn, table, current, current)
		must(t, err)
		if diff != "" {
			t.Error(diff)
		}
	}
	diff, err := difference(t.Context(), haveText.conn, wantText.conn, "turns", current, current)
	must(t, err)
	if diff != "" {
		t.Error(diff)
	}
}

// play applies a batch to a view, quarantines subjects, and commits.
func play(t *testing.T, v projector.View, batch testkit.Records, aside []events.Subject, at events.Offset) {
	t.Helper()
	for _, rec := range batch {
		must(t, v.Apply(t.Context(), projector.Decode(rec)))
	}
	for _, sub := range aside {
		v.Quarantine(projector.Quarantine{Subject: sub, Offset: at, Reason: "it does not fold"})
	}
	must(t, v.Commit(t.Context(), projector.Cursor{Offset: at, EventID: fmt.Sprintf("event-%d", at)}))
}

// written returns a record of a document revision.
func written(doc events.Subject, at events.Offset, text string) events.Record {
	return events.Record{Offset: at, Event: events.Event{ID: fmt.Sprintf("event-%d", at), Source: "urn:test", Type: events.TypeDocumentWritten, Subject: doc,
		ContentType: "text/plain", Data: []byte(text)}}
}
