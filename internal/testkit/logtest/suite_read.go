package logtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
)

func hostileIDsSurvive(t *testing.T, l *log.Log) {
	ids := []string{
		"a/b", ".", "..", "*", ">", "a.b.*.>", " ", "a b", "=41", "=", "%41", "\x00", "\xff\xfe", "日本", "🦫", "\u2028", "a\nb",
		strings.Repeat("x", events.MaxIDLen), strings.Repeat("\x01", events.MaxIDLen),
	}
	var subs []events.Subject
	for _, id := range ids {
		subs = append(subs, session(id), events.Document("", "recipe", id))
	}
	for _, s := range subs {
		mustAppend(t, l, s, log.Any, foreign("", "com.example.x", s.ID))
		mustAppend(t, l, s, log.Any, foreign("", "com.example.x", "2"))
	}
	for i, s := range subs {
		recs := mustRead(t, l, events.Range{Subject: s})
		if len(recs) != 2 || recs[0].Subject != s || string(recs[0].Data) != s.ID {
			t.Fatalf("subject %d %q came back as %+v", i, s.ID, recs)
		}
	}
	for _, id := range []string{"a b", "🦫", "%41", `"`, "é", strings.Repeat("x", events.MaxIDLen), "日\u00a0本"} {
		e := foreign(id, "com.example.x", "x")
		e.Source = "test://" + strconv.Itoa(len(id)) + "/" + "ü%20"
		ack := mustAppend(t, l, session("s"), log.Any, e)
		rec, err := l.Record(t.Context(), ack.Last)
		if err != nil || rec.ID != id || rec.Source != e.Source {
			t.Fatalf("event id %q came back as %+v (%v)", id, rec, err)
		}
		if again := mustAppend(t, l, session("s"), log.Any, e); !again.Duplicate || again.Last != ack.Last {
			t.Fatalf("event id %q again: %+v, want a duplicate of %v", id, again, ack.Last)
		}
	}
}

func bytesSurvive(t *testing.T, l *log.Log) {
	s := session("s")
	e := events.Event{
		ID: "e", Source: source, Type: "com.example.x", ContentType: "application/x-any; a=\"b\"",
		Data:       []byte("\x00\xff {\"a\" :1e2,\"a\":<&>\u2028}\r\n"),
		DataSchema: "http://example.com/schema",
		Time:       time.Date(2026, 2, 3, 4, 5, 6, 789, time.FixedZone("", 3600)),
		Extensions: map[string]string{"actor": "a user", "note": "100 % \"ü\" 🦫"},
	}
	ack := mustAppend(t, l, s, log.Any, e, foreign("no data", "com.example.x", ""))
	recs := mustRead(t, l, events.Range{Subject: s})
	got := recs[0].Event
	if !got.Time.Equal(e.Time) {
		t.Fatalf("time %v, want %v", got.Time, e.Time)
	}
	got.Time, e.Subject, e.Time = time.Time{}, s, time.Time{}
	mustBe(t, "the event", got, e)
	if len(recs[1].Data) != 0 {
		t.Fatalf("empty data were read as %q", recs[1].Data)
	}
	last, err := l.Last(t.Context(), s)
	if err != nil || last.Offset != ack.Last {
		t.Fatalf("last is %v (%v), want %v", last.Offset, err, ack.Last)
	}
}

func rangeLimits(t *testing.T, l *log.Log) {
	a, b := session("a"), events.Session("n", "b")
	doc := events.Document("", "recipe", "r")
	for i := range 10 { // a 1,4,7.. b 2,5,8.. doc 3,6,9..
		mustAppend(t, l, a, log.Any, turn("", strconv.Itoa(i)))
		mustAppend(t, l, b, log.Any, turn("", strconv.Itoa(i)))
		mustAppend(t, l, doc, log.Any, foreign("", "com.example.x", strconv.Itoa(i)))
	}
	all := mustRead(t, l, events.Range{})
	mustBe(t, "all", len(all), 30)
	for _, r := range []events.Range{
		{}, {After: 5}, {Upto: 7}, {After: 5, Upto: 7}, {After: 5, Upto: 6, Limit: 3}, {Limit: 4}, {After: 29}, {After: 30}, {After: 99}, {Upto: 99}, {After: 9, Upto: 3},
		{Subject: a}, {Subject: a, After: 4, Upto: 20}, {Subject: a, Limit: 3}, {Subject: b, After: 2, Limit: 2}, {Subject: doc, Upto: 30}, {Subject: doc, Upto: 29},
		{Namespace: "n"}, {Namespace: "n", Limit: 3}, {Namespace: "default", Kind: "session", After: 3}, {Kind: "recipe"}, {Kind: "recipe", Upto: 17},
		{Kind: "session", Limit: 7, After: 2}, {Namespace: "none"}, {Subject: session("none")}, {Kind: "recipe", Namespace: "n"},
	} {
		var want []events.Offset
		for _, rec := range all {
			if r.Includes(rec.Subject, rec.Offset) && (r.Limit == 0 || len(want) < r.Limit) {
				want = append(want, rec.Offset)
			}
		}
		mustBe(t, fmt.Sprintf("%+v", r), offsets(mustRead(t, l, r)), slices.Concat([]events.Offset{}, want))
	}
	for _, r := range []events.Range{{Namespace: "*"}, {Kind: ">"}, {Kind: "a.b"}, {Subject: events.Subject{Kind: "session"}}} {
		for _, err := range l.Read(t.Context(), r) {
			if _, ok := errors.AsType[*events.InvalidError](err); !ok {
				t.Fatalf("%+v: got %v, want an invalid range", r, err)
			}
		}
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Fatal("a negative limit did not panic")
			}
		}()
		l.Read(t.Context(), events.Range{Limit: -1})
	}()
}

// readsAreFinite reads, more than one window, while another goroutine writes.
func readsAreFinite(t *testing.T, l *log.Log) {
	s := session("s")
	evs := make([]events.Event, events.MaxAppend)
	for n := range 9 {
		for i := range evs {
			evs[i] = foreign("", "com.example.x", strconv.Itoa(n*len(evs)+i))
		}
		mustAppend(t, l, s, log.Any, evs...)
		mustAppend(t, l, session("other"), log.Any, turn("", "x"))
	}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			l.Append(ctx, s, log.Any, foreign("", "com.example.x", "more"))
		}
	})
	for _, r := range []events.Range{{Subject: s}, {}, {Kind: "session"}, {Subject: s, Upto: 9009}} {
		before, err := l.Last(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		recs := mustRead(t, l, r)
		if last := recs[len(recs)-1].Offset; r.Upto == 0 && last < before.Offset {
			t.Fatalf("%+v ended at %v, there was a record at %v", r, last, before.Offset)
		}
		n := 0
		for _, rec := range recs {
			if rec.Subject == s && n < 9*len(evs) {
				if string(rec.Data) != strconv.Itoa(n) {
					t.Fatalf("%+v: record %d of the subject holds %q", r, n, rec.Data)
				}
				n++
			}
		}
		mustBe(t, "records of the subject", n, 9*len(evs))
	}
	stop()
	wg.Wait()
}

func readBackIsReadReversed(t *testing.T, l *log.Log) {
	a, b := session("a"), session("b")
	mustFill(t, l, 3, b)
	for range 3 { // b is dense, then rare
		mustAppend(t, l, a, log.Any, turns(900)...)
		mustFill(t, l, 2, b)
	}
	for _, r := range []events.Range{
		{}, {Limit: 1}, {Limit: 700}, {After: 10, Upto: 500}, {Subject: a}, {Subject: b}, {Subject: b, Limit: 2}, {Subject: b, Limit: 4, Upto: 2000},
		{Subject: a, After: 905, Upto: 2100}, {Subject: session("none")}, {Kind: "session", Limit: 10}, {After: 5, Upto: 2},
	} {
		forward := r
		forward.Limit = 0
		want := offsets(mustRead(t, l, forward))
		slices.Reverse(want)
		if r.Limit > 0 {
			want = want[:min(r.Limit, len(want))]
		}
		got := []events.Offset{}
		for rec, err := range l.ReadBack(t.Context(), r) {
			if err != nil {
				t.Fatalf("%+v: %v", r, err)
			}
			got = append(got, rec.Offset)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%+v: got %d records, want %d:\n%v\n%v", r, len(got), len(want), got, want)
		}
	}
	for range l.ReadBack(t.Context(), events.Range{}) {
		break
	}
}

func lastAndRecord(t *testing.T, l *log.Log) {
	a, b := session("a"), session("b")
	if _, err := l.Last(t.Context(), a); !errors.Is(err, log.ErrNotFound) {
		t.Fatalf("got %v, want ErrNotFound", err)
	}
	if _, err := l.First(t.Context(), a); !errors.Is(err, log.ErrNotFound) {
		t.Fatalf("got %v, want ErrNotFound", err)
	}
	mustFill(t, l, 4, a, b)
	last, err := l.Last(t.Context(), a)
	if err != nil || last.Offset != 3 || last.Subject != a {
		t.Fatalf("last of a is %+v (%v)", last, err)
	}
	for sub, want := range map[events.Subject]events.Offset{a: 1, b: 2} {
		if first, err := l.First(t.Context(), sub); err != nil || first != want {
			t.Fatalf("first of %v is %v (%v), want %v", sub, first, err, want)
		}
	}
	if first, err := l.First(t.Context(), session("none")); !errors.Is(err, log.ErrNotFound) {
		t.Fatalf("got %v, %v, want ErrNotFound", first, err)
	}
	rec, err := l.Record(t.Context(), 2)
	if err != nil || rec.Offset != 2 || rec.Subject != b || !bytes.Equal(rec.Data, turn("", "2").Data) {
		t.Fatalf("record 2 is %+v (%v)", rec, err)
	}
	for _, at := range []events.Offset{0, 5, events.MaxOffset} {
		if _, err := l.Record(t.Context(), at); !errors.Is(err, log.ErrNotFound) {
			t.Fatalf("record %v: got %v, want ErrNotFound", at, err)
		}
	}
}

func subjectsAreCounted(t *testing.T, l *log.Log) {
	mustFill(t, l, 7, session("b"), session("a/*"), events.Session("n", "c"))
	mustAppend(t, l, events.Document("", "recipe", "r"), log.Any, foreign("", "com.example.x", "x"))
	for _, c := range []struct{ ns, kind, want string }{
		{"", "", "default/recipe/r 1, default/session/a/* 2, default/session/b 3, n/session/c 2, "},
		{"default", "session", "default/session/a/* 2, default/session/b 3, "},
		{"n", "", "n/session/c 2, "},
		{"", "recipe", "default/recipe/r 1, "},
		{"none", "", ""},
	} {
		var got strings.Builder
		for info, err := range l.Subjects(t.Context(), c.ns, c.kind) {
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&got, "%s/%s/%s %d, ", info.Subject.Namespace, info.Subject.Kind, info.Subject.ID, info.Count)
		}
		mustBe(t, "subjects of "+c.ns+"/"+c.kind, got.String(), c.want)
	}
}

// followHasNoGap follows from the beginning, from the middle and from a future offset while several writers append.
func followHasNoGap(t *testing.T, l *log.Log) {
	a, b := session("a"), session("b")
	const writers, each = 3, 80
	mustFill(t, l, 30, a, b)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				if _, err := l.Append(t.Context(), []events.Subject{a, b}[i%2], log.Any, turn("", fmt.Sprint(w, i))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	const total = 30 + writers*each
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for _, c := range []struct {
		r    events.Range
		want int
	}{
		{events.Range{}, total}, {events.Range{After: 17}, total - 17}, {events.Range{Kind: "session", Namespace: "default"}, total},
		{events.Range{Subject: a}, total / 2}, {events.Range{Subject: b, After: 20}, total/2 - 10},
	} {
		wg.Go(func() {
			at, n := c.r.After, 0
			for rec, err := range l.Follow(ctx, c.r) {
				if err != nil {
					t.Errorf("%+v: %v", c.r, err)
					return
				}
				if rec.Offset <= at || c.r.Subject == (events.Subject{}) && rec.Offset != at+1 {
					t.Errorf("%+v: got %v after %v", c.r, rec.Offset, at)
					return
				}
				at = rec.Offset
				if n++; n == c.want {
					return
				}
			}
			t.Errorf("%+v: got only %d records of %d, the last is %v", c.r, n, c.want, at)
		})
	}
	wg.Wait()
	mustBe(t, "head", mustHead(t, l), total)
}

func followKeepsToItsRange(t *testing.T, l *log.Log) {
	s := session("s")
	mustFill(t, l, 10, s, session("other"))
	count := func(r events.Range) (n int) {
		for _, err := range l.Follow(t.Context(), r) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		return n
	}
	mustBe(t, "limit", count(events.Range{Limit: 4}), 4)
	mustBe(t, "upto", count(events.Range{After: 2, Upto: 7}), 5)
	mustBe(t, "subject upto", count(events.Range{Subject: s, Upto: 10}), 5)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n := 0
	for _, err := range l.Follow(ctx, events.Range{}) {
		if err != nil {
			t.Fatalf("a cancelled follow ended with %v", err)
		}
		if n++; n == 10 {
			time.AfterFunc(50*time.Millisecond, cancel) // by then it is waiting for new records
		}
	}
	mustBe(t, "called off", n, 10)
}

// concurrentReadersSeePrefixes runs readers and writers at once: every reader sees a prefix of the final log.
func concurrentReadersSeePrefixes(t *testing.T, l *log.Log) {
	s := session("s")
	ctx, stop := context.WithCancel(t.Context())
	var writers, readers sync.WaitGroup
	for w := range 2 {
		writers.Go(func() {
			for i := range 40 {
				if _, err := l.Append(t.Context(), s, log.Any, turn("", fmt.Sprint(w, i)), turn("", "and")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	views := make([][]events.Record, 3)
	for v := range views {
		readers.Go(func() {
			for ctx.Err() == nil {
				var recs []events.Record
				for rec, err := range l.Read(t.Context(), events.Range{Subject: s}) {
					if err != nil {
						t.Error(err)
						return
					}
					recs = append(recs, rec)
				}
				if len(recs) < len(views[v]) {
					t.Errorf("a later read saw %d records, an earlier one %d", len(recs), len(views[v]))
				}
				views[v] = recs
			}
		})
	}
	writers.Wait()
	stop()
	readers.Wait()
	all := mustRead(t, l, events.Range{Subject: s})
	mustBe(t, "records", len(all), 160)
	for _, recs := range views {
		for i, rec := range recs {
			if rec.ID != all[i].ID || rec.Offset != all[i].Offset {
				t.Fatalf("record %d was seen as %v %s, is %v %s", i, rec.Offset, rec.ID, all[i].Offset, all[i].ID)
			}
		}
	}
}
