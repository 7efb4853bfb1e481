package logtest

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
)

// aSeries returns the events of a new session, with ids that have no time.
func aSeries(n int) []events.Event {
	list := []events.Event{created("begin")}
	for i := 1; i < n; i++ {
		list = append(list, turn("t"+strconv.Itoa(i), strconv.Itoa(i)))
	}
	return list
}

func mustAppendSeries(t *testing.T, l *log.Log, sub events.Subject, x log.Expect, evs ...events.Event) (log.Ack, int) {
	t.Helper()
	ack, added, err := l.AppendSeries(t.Context(), sub, x, evs...)
	if err != nil {
		t.Fatalf("append a series to %v: %v", sub, err)
	}
	return ack, added
}

func seriesIsInOrder(t *testing.T, l *log.Log) {
	s := session("s")
	mustFill(t, l, 2, session("other"))
	ack, added := mustAppendSeries(t, l, s, log.At(0), aSeries(5)...)
	mustBe(t, "added", added, 5)
	mustBe(t, "ack", ack, log.Ack{First: 3, Last: 7, Durability: l.Durability()})
	mustBe(t, "offsets", offsets(mustRead(t, l, events.Range{Subject: s})), []events.Offset{3, 4, 5, 6, 7})
	for i, rec := range mustRead(t, l, events.Range{Subject: s}) {
		mustBe(t, "id", rec.ID, aSeries(5)[i].ID)
	}
	more := []events.Event{turn("", "x"), turn("", "y")}
	if ack, added = mustAppendSeries(t, l, s, log.Any, more...); added != 2 || ack.First != 8 || ack.Last != 9 {
		t.Fatalf("events without ids: %+v, %d added", ack, added)
	}
}

func seriesIsIdempotent(t *testing.T, l *log.Log) {
	s := session("s")
	evs := aSeries(6)
	mustAppendSeries(t, l, s, log.At(0), evs[:2]...)
	mustFill(t, l, 1, session("other"))
	// The second call completes a series that a crash cut short.
	ack, added := mustAppendSeries(t, l, s, log.At(0), evs...)
	mustBe(t, "added", added, 4)
	mustBe(t, "ack", ack, log.Ack{First: 1, Last: 7, Durability: l.Durability()})
	for range 2 {
		ack, added = mustAppendSeries(t, l, s, log.At(0), evs...)
		mustBe(t, "added again", added, 0)
		mustBe(t, "ack of what is there", ack, log.Ack{First: 1, Last: 7, Durability: l.Durability(), Duplicate: true})
		mustFill(t, l, 1, s)
	}
}

func seriesKeepsOthersOut(t *testing.T, l *log.Log) {
	s := session("s")
	evs := aSeries(4)
	mustAppendSeries(t, l, s, log.At(0), evs[:2]...)
	mustFill(t, l, 1, s) // another writer
	for _, x := range []log.Expect{log.At(0), log.Any} {
		_, added, err := l.AppendSeries(t.Context(), s, x, append([]events.Event{}, evs...)...)
		mustBe(t, "added", added, 0)
		mustBeConflict(t, err, s, 2, 3)
	}
	_, added, err := l.AppendSeries(t.Context(), s, log.At(2), turn("x", "x"), turn("y", "y"))
	if !errors.Is(err, log.ErrConflict) || added != 0 {
		t.Fatalf("a first event at the wrong place: %d added, %v", added, err)
	}
	// The log has the events in another order.
	_, added, err = l.AppendSeries(t.Context(), s, log.Any, evs[1], evs[0])
	if err == nil || added != 0 {
		t.Fatalf("another order: %d added, %v", added, err)
	}
	mustBe(t, "head", mustHead(t, l), 3)
}

func seriesRefusesTheInvalid(t *testing.T, l *log.Log) {
	evs := aSeries(3)
	evs[2].Data = []byte(`{"entries":[]}`)
	_, added, err := l.AppendSeries(t.Context(), session("s"), log.At(0), evs...)
	if _, invalid := errors.AsType[*events.InvalidError](err); !invalid || added != 0 {
		t.Fatalf("%d added, %v", added, err)
	}
	_, _, err = l.AppendSeries(t.Context(), session("s"), log.At(0), turn("a", "x"), turn("a", "y"))
	if _, invalid := errors.AsType[*events.InvalidError](err); !invalid {
		t.Fatalf("one identity twice: %v", err)
	}
	mustHaveNothing(t, l)
}

func seriesOfManyIsOne(t *testing.T, l *log.Log) {
	s := session("s")
	const writers, n = 4, 20
	counts := make([]int, writers)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			var err error
			if _, counts[w], err = l.AppendSeries(t.Context(), s, log.At(0), aSeries(n)...); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	sum := 0
	for _, c := range counts {
		sum += c
	}
	mustBe(t, "added by all", sum, n)
	mustBe(t, "records", len(mustRead(t, l, events.Range{Subject: s})), n)
}

// seriesUnderFaults repeats series that end early: in the end each of their events is stored once, and in order.
func seriesUnderFaults(t *testing.T, open func(*testing.T) log.Backend) {
	eachFault(t, open, 11, 4, func(t *testing.T, l *log.Log) {
		var wg sync.WaitGroup
		for w := range 3 {
			wg.Go(func() {
				retry(t, func() (log.Ack, error) {
					ack, _, err := l.AppendSeries(t.Context(), session(fmt.Sprint("s", w)), log.At(0), aSeries(20)...)
					return ack, err
				})
			})
		}
		wg.Wait()
		for w := range 3 {
			var ids, want []string
			for i, rec := range mustRead(t, l, events.Range{Subject: session(fmt.Sprint("s", w))}) {
				ids, want = append(ids, rec.ID), append(want, aSeries(20)[i%20].ID)
			}
			mustBe(t, "records", len(ids), 20)
			mustBe(t, "ids", ids, want)
		}
	})
}
