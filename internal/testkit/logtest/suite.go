package logtest

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
)

// Run tests the promises of a log. It calls open once for each, which returns an empty log and closes it when the test
// ends.
func Run(t *testing.T, open func(t *testing.T) *log.Log) {
	for _, promise := range []struct {
		name string
		test func(*testing.T, *log.Log)
	}{
		{"AppendGivesOffsets", appendGivesOffsets},
		{"AppendIsAtomic", appendIsAtomic},
		{"AppendIsIdempotent", appendIsIdempotent},
		{"AppendOfOldIdsIsIdempotent", appendOfOldIDsIsIdempotent},
		{"AppendKeepsIdentitiesApart", appendKeepsIdentitiesApart},
		{"AppendRefusesAnotherEventOfTheSameIdentity", appendRefusesAnotherEvent},
		{"AppendRefusesWhatIsThereInPart", appendRefusesPart},
		{"AppendRefusesTheInvalid", appendRefusesTheInvalid},
		{"AppendRefusesTheLarge", appendRefusesTheLarge},
		{"SeriesIsInOrder", seriesIsInOrder},
		{"SeriesIsIdempotent", seriesIsIdempotent},
		{"SeriesKeepsOthersOut", seriesKeepsOthersOut},
		{"SeriesRefusesTheInvalid", seriesRefusesTheInvalid},
		{"SeriesOfManyIsOne", seriesOfManyIsOne},
		{"AllGoToTheirSubjects", allGoToTheirSubjects},
		{"AllIsAllOrNothing", allIsAllOrNothing},
		{"AllRefusesWhatIsThereInPart", allRefusesWhatIsThereInPart},
		{"AllRefusesTheInvalid", allRefusesTheInvalid},
		{"AllThatCrossAreInOneOrder", allThatCrossAreInOneOrder},
		{"ReadersSeeAllOrNothing", readersSeeAllOrNothing},
		{"AtExpectsTheExactOffset", atExpectsTheExactOffset},
		{"RetryAfterAtIsNoConflict", retryAfterAtIsNoConflict},
		{"OnlyOneWriterWins", onlyOneWriterWins},
		{"SinceIgnoresOtherTypes", sinceIgnoresOtherTypes},
		{"SinceDoesNotStarve", sinceDoesNotStarve},
		{"GuardedTypesNeedExpectation", guardedTypesNeedExpectation},
		{"OrderIsCallOrder", orderIsCallOrder},
		{"AbortAfterFailure", abortAfterFailure},
		{"WritersOfOldIdsShareASubject", writersShareASubject},
		{"HostileIdsSurvive", hostileIDsSurvive},
		{"BytesSurvive", bytesSurvive},
		{"RangeLimits", rangeLimits},
		{"ReadsAreFinite", readsAreFinite},
		{"ReadBackIsReadReversed", readBackIsReadReversed},
		{"LastAndRecord", lastAndRecord},
		{"SubjectsAreCounted", subjectsAreCounted},
		{"FollowHasNoGap", followHasNoGap},
		{"FollowKeepsToItsRange", followKeepsToItsRange},
		{"ConcurrentReadersSeePrefixes", concurrentReadersSeePrefixes},
		{"ClosedLogRefuses", closedLogRefuses},
	} {
		t.Run(promise.name, func(t *testing.T) { promise.test(t, open(t)) })
	}
}

const source = "test://suite"

func session(id string) events.Subject { return events.Session("", id) }

// turn returns an event that needs no expectation. With id "" the log makes an id.
func turn(id, text string) events.Event {
	return events.Event{
		ID: id, Source: source, Type: events.TypeTurnAppended, ContentType: events.ContentTypeJSON,
		Data: []byte(`{"entries":[{"thread":"main","turn":` + strconv.Quote(text) + `}]}`),
	}
}

// turns returns n turns "0" to "n-1", without ids.
func turns(n int) []events.Event {
	evs := make([]events.Event, n)
	for i := range evs {
		evs[i] = turn("", strconv.Itoa(i))
	}
	return evs
}

// foreign returns an event of a type outside the vocabulary.
func foreign(id, typ, text string) events.Event {
	return events.Event{ID: id, Source: source, Type: typ, ContentType: "text/plain", Data: []byte(text)}
}

// created returns an event that needs an expectation.
func created(id string) events.Event {
	return events.Event{
		ID: id, Source: source, Type: events.TypeSessionCreated, ContentType: events.ContentTypeJSON,
		Data: []byte(`{"kind":"conversation","createdAt":"2026-01-02T03:04:05Z"}`),
	}
}

func mustAppend(t *testing.T, l *log.Log, sub events.Subject, x log.Expect, evs ...events.Event) log.Ack {
	t.Helper()
	ack, err := l.Append(t.Context(), sub, x, evs...)
	if err != nil {
		t.Fatalf("append to %v: %v", sub, err)
	}
	return ack
}

// mustFill appends n turns "1" to "n" one by one, to the subjects in rotation.
func mustFill(t *testing.T, l *log.Log, n int, subs ...events.Subject) {
	t.Helper()
	for i := range n {
		mustAppend(t, l, subs[i%len(subs)], log.Any, turn("", strconv.Itoa(i+1)))
	}
}

func mustRead(t *testing.T, l *log.Log, r events.Range) []events.Record {
	t.Helper()
	var recs []events.Record
	for rec, err := range l.Read(t.Context(), r) {
		if err != nil {
			t.Fatalf("read %+v: %v", r, err)
		}
		recs = append(recs, rec)
	}
	return recs
}

func mustHead(t *testing.T, l *log.Log) events.Offset {
	t.Helper()
	head, err := l.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return head
}

// mustHaveEachOnce requires n records of a subject, of n ids.
func mustHaveEachOnce(t *testing.T, l *log.Log, sub events.Subject, n int) {
	t.Helper()
	seen := make(map[string]bool)
	for _, rec := range mustRead(t, l, events.Range{Subject: sub}) {
		if seen[rec.ID] {
			t.Fatalf("%v: the id %s is stored twice", rec.Offset, rec.ID)
		}
		seen[rec.ID] = true
	}
	mustBe(t, "records", len(seen), n)
}

// mustBeConflict requires a *log.ConflictError.
func mustBeConflict(t *testing.T, err error, sub events.Subject, want, have events.Offset) {
	t.Helper()
	conflict, ok := errors.AsType[*log.ConflictError](err)
	if !ok || !errors.Is(err, log.ErrConflict) {
		t.Fatalf("got %v, want a conflict", err)
	}
	mustBe(t, "conflict", *conflict, log.ConflictError{Subject: sub, Want: want, Have: have})
}

func mustHaveNothing(t *testing.T, l *log.Log) {
	t.Helper()
	if head := mustHead(t, l); head != 0 {
		t.Fatalf("the log has %d records, want none", head)
	}
}

func offsets(recs []events.Record) []events.Offset {
	out := []events.Offset{}
	for _, r := range recs {
		out = append(out, r.Offset)
	}
	return out
}

func mustBe[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if g, w := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want); g != w {
		t.Fatalf("%s:\n got %s\nwant %s", what, g, w)
	}
}

// mustBeInvalid requires an *events.InvalidError of a field.
func mustBeInvalid(t *testing.T, err error, field string) {
	t.Helper()
	invalid, ok := errors.AsType[*events.InvalidError](err)
	if !ok || invalid.Field != field {
		t.Fatalf("got error %v, want an invalid %s", err, field)
	}
}

func appendGivesOffsets(t *testing.T, l *log.Log) {
	a, b := session("a"), session("b")
	mustBe(t, "first", mustAppend(t, l, a, log.Any, turn("", "1")).Last, 1)
	ack := mustAppend(t, l, b, log.Any, turn("", "2"), turn("", "3"), turn("", "4"))
	mustBe(t, "three", ack, log.Ack{First: 2, Last: 4, Durability: l.Durability()})
	mustBe(t, "head", mustHead(t, l), 4)
	mustBe(t, "of a", offsets(mustRead(t, l, events.Range{Subject: a})), []events.Offset{1})
	mustBe(t, "of b", offsets(mustRead(t, l, events.Range{Subject: b})), []events.Offset{2, 3, 4})
	for _, rec := range mustRead(t, l, events.Range{}) {
		if rec.ID == "" || rec.Time.IsZero() || rec.Recorded.IsZero() {
			t.Fatalf("%v lacks an id or a time: %+v", rec.Offset, rec)
		}
	}
}

func appendIsAtomic(t *testing.T, l *log.Log) {
	s := session("s")
	mustAppend(t, l, s, log.Any, turn("e1", "1"))
	bad := turn("e4", "4")
	bad.Data = []byte("{")
	for name, try := range map[string]func() error{
		"the last is invalid": func() error {
			_, err := l.Append(t.Context(), s, log.Any, turn("e2", "2"), turn("e3", "3"), bad)
			return err
		},
		"the expectation is wrong": func() error {
			_, err := l.Append(t.Context(), s, log.At(0), turn("e2", "2"), turn("e3", "3"))
			return err
		},
		"one is there": func() error {
			_, err := l.Append(t.Context(), s, log.Any, turn("e2", "2"), turn("e1", "1"))
			return err
		},
	} {
		if try() == nil {
			t.Fatalf("%s: no error", name)
		}
		mustBe(t, "head after: "+name, mustHead(t, l), 1)
	}
	many := turns(events.MaxAppend)
	ack := mustAppend(t, l, s, log.At(1), many...)
	mustBe(t, "the largest append", []events.Offset{ack.First, ack.Last}, []events.Offset{2, 1 + events.MaxAppend})
	for i, rec := range mustRead(t, l, events.Range{Subject: s, After: 1}) {
		if !bytes.Equal(rec.Data, many[i].Data) {
			t.Fatalf("%v holds %s, want %s", rec.Offset, rec.Data, many[i].Data)
		}
	}
}

func appendIsIdempotent(t *testing.T, l *log.Log) {
	s := session("s")
	one := l.Stamp(turn("", "1"))
	few := []events.Event{l.Stamp(turn("", "2")), l.Stamp(turn("", "3"))}
	first := mustAppend(t, l, s, log.Any, one)
	second := mustAppend(t, l, s, log.Any, few...)
	mustFill(t, l, 3, session("other"))
	for range 2 {
		first.Duplicate, second.Duplicate = true, true
		mustBe(t, "one again", mustAppend(t, l, s, log.Any, one), first)
		mustBe(t, "two again", mustAppend(t, l, s, log.Any, few...), second)
	}
	mustBe(t, "head", mustHead(t, l), 6)
}

func appendOfOldIDsIsIdempotent(t *testing.T, l *log.Log) {
	s := session("s")
	var acks []log.Ack
	for i := range 20 {
		acks = append(acks, mustAppend(t, l, s, log.Any, turn(fmt.Sprint("line:", i), "x"), turn(fmt.Sprint("page:", i), "y")))
	}
	for i, want := range acks {
		want.Duplicate = true
		got := mustAppend(t, l, s, log.Any, turn(fmt.Sprint("line:", i), "x"), turn(fmt.Sprint("page:", i), "y"))
		mustBe(t, "again", got, want)
		want.Last = want.First
		mustBe(t, "half of it", mustAppend(t, l, s, log.At(40), turn(fmt.Sprint("line:", i), "x")), want)
	}
	mustBe(t, "head", mustHead(t, l), 40)
}

func appendKeepsIdentitiesApart(t *testing.T, l *log.Log) {
	e := turn("same", "x")
	other := e
	other.Source = "test://other"
	mustBe(t, "a", mustAppend(t, l, session("a"), log.Any, e).Last, 1)
	mustBe(t, "the same id in another session", mustAppend(t, l, session("b"), log.Any, e).Last, 2)
	mustBe(t, "the same id of another source", mustAppend(t, l, session("a"), log.Any, other).Last, 3)
	mustBe(t, "the same id in another namespace", mustAppend(t, l, events.Session("n", "a"), log.Any, e).Last, 4)
}

func appendRefusesAnotherEvent(t *testing.T, l *log.Log) {
	s := session("s")
	young := l.Stamp(turn("", "x"))
	mustAppend(t, l, s, log.Any, young)
	mustAppend(t, l, s, log.Any, turn("old", "x"))
	changed := young
	changed.Data = turn("", "y").Data
	for _, e := range []events.Event{changed, turn("old", "y"), foreign("old", "com.example.other", "x")} {
		_, err := l.Append(t.Context(), s, log.Any, e)
		mustBeInvalid(t, err, "id")
		_, err = l.Append(t.Context(), s, log.At(0), e)
		mustBeInvalid(t, err, "id")
	}
	_, err := l.Append(t.Context(), s, log.Any, turn("twice", "x"), turn("twice", "x"))
	mustBeInvalid(t, err, "id")
	mustBe(t, "head", mustHead(t, l), 2)
}

func appendRefusesPart(t *testing.T, l *log.Log) {
	s := session("s")
	a, b, c := l.Stamp(turn("", "a")), l.Stamp(turn("", "b")), turn("c", "c")
	mustAppend(t, l, s, log.Any, a)
	mustAppend(t, l, s, log.Any, c)
	for _, evs := range [][]events.Event{{a, b}, {b, c}, {b, a, c}} {
		_, err := l.Append(t.Context(), s, log.Any, evs...)
		partial, ok := errors.AsType[*log.PartialError](err)
		if !ok || len(partial.Have) != len(evs)-1 {
			t.Fatalf("got %v, want a partial error with %d", err, len(evs)-1)
		}
		for _, h := range partial.Have {
			rec, err := l.Record(t.Context(), h.Offset)
			if err != nil || rec.ID != evs[h.Index].ID || rec.ID != h.ID {
				t.Fatalf("%+v names the wrong record %+v (%v)", h, rec, err)
			}
		}
	}
	mustBe(t, "head", mustHead(t, l), 2)
}

func appendRefusesTheInvalid(t *testing.T, l *log.Log) {
	s := session("s")
	elsewhere := turn("", "x")
	elsewhere.Subject = session("t")
	noSource := turn("", "x")
	noSource.Source = ""
	badData := turn("", "x")
	badData.Data = []byte(`{"entries":"none"}`)
	for _, c := range []struct {
		sub   events.Subject
		evs   []events.Event
		field string
	}{
		{s, nil, "events"},
		{events.Subject{}, []events.Event{turn("", "x")}, "namespace"},
		{session(""), []events.Event{turn("", "x")}, "subject"},
		{s, []events.Event{elsewhere}, "subject"},
		{s, []events.Event{noSource}, "source"},
	} {
		_, err := l.Append(t.Context(), c.sub, log.Any, c.evs...)
		mustBeInvalid(t, err, c.field)
		_, err = l.AppendAsync(t.Context(), c.sub, log.Any, c.evs...).Wait(t.Context())
		mustBeInvalid(t, err, c.field)
	}
	_, err := l.Append(t.Context(), s, log.Any, badData)
	if _, ok := errors.AsType[*events.InvalidError](err); !ok {
		t.Fatalf("got %v, want an invalid payload", err)
	}
	mustHaveNothing(t, l)
}

func appendRefusesTheLarge(t *testing.T, l *log.Log) {
	s := session("s")
	manyHeaders := foreign("", "com.example.x", "x")
	for i := range 4 {
		manyHeaders = manyHeaders.WithExtension(fmt.Sprint("ext", i), string(bytes.Repeat([]byte("v"), events.MaxHeaders/4)))
	}
	for _, evs := range [][]events.Event{
		{foreign("", "com.example.x", string(make([]byte, events.MaxData+1)))},
		{manyHeaders},
		make([]events.Event, events.MaxAppend+1),
	} {
		if _, err := l.Append(t.Context(), s, log.Any, evs...); !errors.Is(err, log.ErrTooLarge) {
			t.Fatalf("got %v, want ErrTooLarge", err)
		}
	}
	mustHaveNothing(t, l)
	big := bytes.Repeat([]byte("0123456789abcdef"), events.MaxData/16)
	mustAppend(t, l, s, log.Any, foreign("", "com.example.x", string(big)))
	if recs := mustRead(t, l, events.Range{Subject: s}); !bytes.Equal(recs[0].Data, big) {
		t.Fatal("the largest data came back changed")
	}
}

func closedLogRefuses(t *testing.T, l *log.Log) {
	mustFill(t, l, 3, session("s"))
	var wg sync.WaitGroup
	followed := make(chan struct{}, 8)
	wg.Go(func() {
		var last error
		for _, err := range l.Follow(t.Context(), events.Range{}) {
			last = err
			followed <- struct{}{}
		}
		if !errors.Is(last, log.ErrUnavailable) {
			t.Errorf("a follow ended with %v, want ErrUnavailable", last)
		}
	})
	for range 3 {
		<-followed
	}
	if err := errors.Join(l.Close(), l.Close()); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	_, appendErr := l.Append(t.Context(), session("s"), log.Any, turn("", "x"))
	_, headErr := l.Head(t.Context())
	_, lastErr := l.Last(t.Context(), session("s"))
	_, recordErr := l.Record(t.Context(), 1)
	errs := []error{appendErr, headErr, lastErr, recordErr}
	for _, err := range l.Read(t.Context(), events.Range{}) {
		errs = append(errs, err)
	}
	for _, err := range l.Subjects(t.Context(), "", "") {
		errs = append(errs, err)
	}
	for i, err := range errs {
		if !errors.Is(err, log.ErrUnavailable) {
			t.Errorf("call %d: got %v, want ErrUnavailable", i, err)
		}
	}
	mustBe(t, "calls", len(errs), 6)
}
