package projector_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/projector"
)

// foreign is the only type of another vocabulary in testkit.History.
const foreign = "com.example.something.happened"

// effective returns the offsets of the model's records that are in effect.
func (m *modelSession) effective(foreignMoves bool) []events.Offset {
	list := []events.Offset{}
	for i, rec := range m.history {
		moves := slices.Contains(events.ThreadTypes(), rec.Type) || rec.Type == foreign && foreignMoves
		isLive := slices.Contains(m.head(), i+1)
		switch {
		case i < m.inherited && moves && isLive, i >= m.inherited && !m.rejected[rec.Offset] && (isLive || !moves):
			list = append(list, rec.Offset)
		}
	}
	return list
}

func offsetsOf(t *rapid.T, facts iter.Seq2[projector.Fact, error]) []events.Offset {
	t.Helper()
	list := []events.Offset{}
	for f, err := range facts {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, f.Offset)
	}
	return list
}

// The records in effect are those of the model, at every position. What follows from a record alone agrees.
func TestEffective(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records := testkit.History().Draw(t, "log")
		for i := range records {
			if records[i].Type == events.TypeTurnAppended && rapid.IntRange(0, 3).Draw(t, "foreign") == 0 {
				records[i].Type = foreign
			}
		}
		foreignMoves := rapid.Bool().Draw(t, "moves")
		moves := func(typ string) bool { return typ == foreign && foreignMoves }
		l := &projector.Loader{Source: records}
		sub := drawSession(t, records)
		before, shifted := []events.Offset{}, false
		for _, rec := range records.Of(sub) {
			want := modelOf(records, sub.ID, rec.Offset).effective(foreignMoves)
			if diff := cmp.Diff(want, offsetsOf(t, l.Effective(t.Context(), sub, rec.Offset, moves))); diff != "" {
				t.Fatalf("records in effect at %v (-want +got):\n%s", rec.Offset, diff)
			}
			f := projector.Decode(rec)
			with := append(slices.Clone(before), rec.Offset)
			switch {
			case projector.Shifts(f):
				shifted = true
			case projector.IsCertain(f, shifted) && !slices.Equal(want, with):
				t.Fatalf("%v is certain, but the records in effect are %v after %v", rec.Offset, want, before)
			case !slices.Equal(want, with) && !slices.Equal(want, before):
				t.Fatalf("%v does not shift, but the records in effect are %v after %v", rec.Offset, want, before)
			}
			before = want
		}
	})
}

// Of a document, valid revisions are in effect, those before a purge are not, and own events always are. A subject
// without records has none. Lost records are reported at the end.
func TestEffectiveOfDocuments(t *testing.T) {
	doc := events.Document("", "doc", "a")
	var records testkit.Records
	add := func(typ, data string, extensions map[string]string) {
		at := events.Offset(len(records) + 1)
		records = append(records, events.Record{Offset: at, Event: events.Event{ID: fmt.Sprint(at), Source: "urn:test", Type: typ, Subject: doc, Data: []byte(data), Extensions: extensions}})
	}
	add(events.TypeDocumentDeleted, `{"reason":"deleted"}`, nil) // nothing to delete
	add(events.TypeDocumentWritten, "one", nil)
	add(foreign, `{}`, nil)
	add(events.TypeDocumentWritten, "two", map[string]string{events.ExtDoc: "{"}) // invalid metadata
	add(events.TypeDocumentDeleted, `{"reason":"deleted"}`, nil)
	add(events.TypeDocumentWritten, "three", nil)
	add(events.TypeDocumentDeleted, `{"reason":"purged"}`, nil)
	add(events.TypeDocumentWritten, "four", nil)
	add(events.TypeTurnAppended, `{"entries":[]}`, nil) // not an event of a document
	for at, want := range map[events.Offset][]events.Offset{1: nil, 3: {2, 3}, 6: {2, 3, 5, 6}, 0: {3, 7, 8}} {
		var got []events.Offset
		for f, err := range (&projector.Loader{Source: records}).Effective(t.Context(), doc, at, nil) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, f.Offset)
		}
		if !slices.Equal(got, want) {
			t.Errorf("at %v: got %v, want %v", at, got, want)
		}
	}
	for _, sub := range []events.Subject{events.Document("", "doc", "b"), events.Session("", "b")} {
		for f, err := range (&projector.Loader{Source: records}).Effective(t.Context(), sub, 0, nil) {
			t.Errorf("%s without records: got %v, %v", sub, f, err)
		}
	}
	s := events.Session("", "s")
	for _, sub := range []events.Subject{doc, s} {
		records := testkit.Records{}
		for at := range events.Offset(3) {
			records = append(records, events.Record{Offset: at + 1, Event: events.Event{ID: fmt.Sprint(at), Source: "urn:test", Type: foreign, Subject: sub}})
		}
		var got []events.Offset
		var last error
		for f, err := range (&projector.Loader{Source: holed{records, 2}}).Effective(t.Context(), sub, 0, nil) {
			if last = err; err == nil {
				got = append(got, f.Offset)
			}
		}
		if hole, is := errors.AsType[*projector.HoleError](last); !is || !slices.Equal(hole.Damaged, []events.Offset{2}) || !slices.Equal(got, []events.Offset{1, 3}) {
			t.Errorf("%s without record 2: got %v, %v", sub, got, last)
		}
	}
	for _, sub := range []events.Subject{doc, s} {
		count := 0
		for _, err := range (&projector.Loader{Source: failing{records}}).Effective(t.Context(), sub, 0, nil) {
			if count++; err == nil || count > 1 {
				t.Errorf("%s of a log that fails: got %v, %d times", sub, err, count)
			}
		}
	}
}

// holed is a source that has lost a record.
type holed struct {
	testkit.Records
	lost events.Offset
}

func (h holed) Read(ctx context.Context, r events.Range) iter.Seq2[events.Record, error] {
	return func(yield func(events.Record, error) bool) {
		for rec, err := range h.Records.Read(ctx, r) {
			if rec.Offset == h.lost {
				rec, err = events.Record{}, &events.DamageError{Offset: h.lost}
			}
			if !yield(rec, err) {
				return
			}
		}
	}
}

// failing is a source whose reads fail.
type failing struct{ testkit.Records }

func (failing) Read(context.Context, events.Range) iter.Seq2[events.Record, error] {
	return func(yield func(events.Record, error) bool) { yield(events.Record{}, context.DeadlineExceeded) }
}
