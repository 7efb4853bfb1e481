package quota

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit/logtest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
	"github.com/tallylog/tally/snapshot"
)

// againLog returns a log whose sessions may repeat few bytes of data.
type againLog struct {
	t *testing.T
	*log.Log
	sub   events.Subject
	again *Again
}

func newAgainLog(t *testing.T, most int64) *againLog {
	a := NewAgain(0)
	a.maxAgain, a.check = most, func(_ string, again, _ int64) error {
		return &events.InvalidError{Field: events.ExtDataRef, Reason: fmt.Sprint(again)}
	}
	l := logtest.OpenOn(t, memlog.New(memlog.Config{}), log.Config{Host: log.Host{Admit: a.Admit}})
	a.Watch(l)
	return &againLog{t, l, events.Session("", "s"), a}
}

// blob stores a turn of n bytes, and returns the reference to it.
func (l *againLog) blob(c string, n int) string {
	data := []byte(`{"entries":[{"thread":"main","turn":"` + strings.Repeat(c, n) + `"}]}`)
	sum := snapshot.Sum(data)
	e := events.Event{ID: "part-0-of-1", Source: "urn:tally:blob", Type: events.TypeDocumentWritten, ContentType: events.ContentTypeRaw, Data: data}
	if _, err := l.Append(l.t.Context(), events.Document("", events.KindBlob, sum), log.Any, e); err != nil {
		l.t.Fatal(err)
	}
	return events.BlobRef(sum)
}

func (l *againLog) name(id, ref string) error { return l.nameFrom("urn:t", id, ref) }

func (l *againLog) nameFrom(source, id, ref string) error {
	e := events.Event{ID: id, Source: source, Type: events.TypeTurnAppended}
	_, err := l.Append(l.t.Context(), l.sub, log.Any, e.WithExtension(events.ExtDataRef, ref))
	return err
}

// A session may repeat data up to the bound. An event that was stored can be sent again. References of other sessions
// do not count.
func TestAgain(t *testing.T) {
	l := newAgainLog(t, 4*20_100)
	large, small := l.blob("a", 20_000), l.blob("b", 20)
	for i := range 5 {
		if err := l.name(fmt.Sprint(i), large); err != nil {
			t.Fatalf("record %d: %v", i, err)
		}
	}
	must := func(want bool, id, ref string) {
		t.Helper()
		err := l.name(id, ref)
		if _, refused := errors.AsType[*events.InvalidError](err); refused != want || !want && err != nil {
			t.Errorf("%s: got the error %v", id, err)
		}
	}
	must(true, "sixth", large)
	must(false, "3", large)
	if _, refused := errors.AsType[*events.InvalidError](l.nameFrom("urn:other", "3", large)); !refused {
		t.Error("an event of another source with a stored id was admitted, want a refusal")
	}
	must(false, "small", small)
	must(false, "small again", small)
	must(false, "other data", l.blob("c", 20_000))
	must(true, "sixth", large)
	l.sub.ID = "other"
	must(false, "sixth", large)
	must(false, "seventh", large)
}

// Of concurrent appends, as many are stored as the bound admits.
func TestAgainAtOnce(t *testing.T) {
	l := newAgainLog(t, 4*20_100)
	ref := l.blob("a", 20_000)
	var work sync.WaitGroup
	var stored atomic.Int32
	for i := range 40 {
		work.Go(func() {
			if l.name(fmt.Sprint(i), ref) == nil {
				stored.Add(1)
			}
		})
	}
	work.Wait()
	if stored.Load() != 5 {
		t.Errorf("stored %d of 40 events, want 5", stored.Load())
	}
}

// References under way count, however many other sessions are counted meanwhile.
func TestAgainMeanwhile(t *testing.T) {
	l := newAgainLog(t, 20_100)
	ref := l.blob("a", 20_000)
	a := NewAgain(0)
	a.maxAgain, a.check = l.again.maxAgain, l.again.check
	a.Watch(l)
	admit := func(session, id string) (func([]log.Ack, error), error) {
		sub := events.Session("", session)
		e := events.Event{ID: id, Source: "urn:t", Type: events.TypeTurnAppended, Subject: sub}
		return a.Admit(t.Context(), []log.Part{{Subject: sub, Events: []events.Event{e.WithExtension(events.ExtDataRef, ref)}}})
	}
	for _, id := range []string{"first", "second"} { // they are not stored yet
		if _, err := admit("s", id); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 2 * maxCounted {
		settle, err := admit(fmt.Sprint(i), "first")
		if err != nil {
			t.Fatal(err)
		}
		settle(nil, log.ErrConflict)
	}
	if _, err := admit("s", "third"); err == nil {
		t.Error("a third reference was admitted while two are under way, want a refusal")
	}
}

// After a failed append there is room for the next one.
func TestAgainFails(t *testing.T) {
	l := newAgainLog(t, 20_100)
	ref := l.blob("a", 20_000)
	if err := l.name("first", ref); err != nil {
		t.Fatal(err)
	}
	e := events.Event{ID: "fails", Source: "urn:t", Type: events.TypeTurnAppended}
	if _, err := l.Append(t.Context(), l.sub, log.At(0), e.WithExtension(events.ExtDataRef, ref)); !errors.Is(err, log.ErrConflict) {
		t.Fatal(err)
	}
	if err := l.name("second", ref); err != nil {
		t.Error(err)
	}
}
