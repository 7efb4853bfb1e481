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

// RunFaults tests the promises of a log on a backend whose publications get lost, or are stored without an answer. It
// calls open several times, which returns an empty backend and closes it when the test ends.
func RunFaults(t *testing.T, open func(t *testing.T) log.Backend) {
	t.Run("RetryAfterUnknown", func(t *testing.T) { retryAfterUnknown(t, open) })
	t.Run("ExpectationsUnderFaults", func(t *testing.T) { expectationsUnderFaults(t, open) })
	t.Run("SeriesUnderFaults", func(t *testing.T) { seriesUnderFaults(t, open) })
	t.Run("AsyncUnderFaults", func(t *testing.T) { asyncUnderFaults(t, open) })
	t.Run("AllUnderFaults", func(t *testing.T) { allUnderFaults(t, open) })
}

// retryAfterUnknown appends under faults and retries every append without an answer: in the end each event is stored
// once, in the order of its writer.
func retryAfterUnknown(t *testing.T, open func(*testing.T) log.Backend) {
	for name, id := range map[string]func(w, i int) string{
		"young": func(int, int) string { return "" },
		"old":   func(w, i int) string { return fmt.Sprintf("w%d-%d", w, i) },
	} {
		t.Run(name, func(t *testing.T) {
			eachFault(t, open, 7, 3, func(t *testing.T, l *log.Log) { retryUntilAcked(t, l, id) })
		})
	}
}

// eachFault tests a log of its own for each fault, which occurs once in n publications.
func eachFault(t *testing.T, open func(*testing.T) log.Backend, seed uint64, n int, test func(*testing.T, *log.Log)) {
	for _, fault := range []Fault{Dropped, AckLost, Late, Twice} {
		t.Run(fault.String(), func(t *testing.T) {
			test(t, OpenOn(t, &Faulty{Backend: open(t), Next: Sometimes(seed, n, fault)}, log.Config{}))
		})
	}
}

func retryUntilAcked(t *testing.T, l *log.Log, id func(w, i int) string) {
	const writers, each = 3, 60
	s := session("s")
	acked := make([][]log.Ack, writers)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				evs := []events.Event{l.Stamp(turn(id(w, i), fmt.Sprintf("w%d-%d", w, i)))}
				if i%4 == 0 {
					evs = append(evs, l.Stamp(turn(id(w, i+1000), "and")))
				}
				acked[w] = append(acked[w], retry(t, func() (log.Ack, error) { return l.Append(t.Context(), s, log.Any, evs...) }))
			}
		})
	}
	wg.Wait()
	next := make([]int, writers)
	n := 0
	for rec, err := range l.Read(t.Context(), events.Range{Subject: s}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
		for w := range writers {
			if i := next[w]; i < each && acked[w][i].First == rec.Offset {
				if want := string(turn("", fmt.Sprintf("w%d-%d", w, i)).Data); string(rec.Data) != want {
					t.Fatalf("%v holds %s, the ack was for %s", rec.Offset, rec.Data, want)
				}
				next[w]++
			}
		}
	}
	if want := writers * (each + each/4); n != want || fmt.Sprint(next) != fmt.Sprint([]int{each, each, each}) {
		t.Fatalf("%d records, want %d; in order of their writers: %v", n, want, next)
	}
}

// retry appends until an answer comes.
func retry(t *testing.T, again func() (log.Ack, error)) log.Ack {
	for range 1000 {
		ack, err := again()
		if err == nil {
			return ack
		}
		if !errors.Is(err, log.ErrUnknown) {
			t.Errorf("append: %v", err)
			return log.Ack{}
		}
	}
	t.Error("got no answer in a thousand attempts")
	return log.Ack{}
}

// expectationsUnderFaults retries decisions: none is made twice or lost.
func expectationsUnderFaults(t *testing.T, open func(*testing.T) log.Backend) {
	eachFault(t, open, 3, 2, func(t *testing.T, l *log.Log) {
		s := session("s")
		last := events.Offset(0)
		for i := range 100 {
			e := l.Stamp(turn("", strconv.Itoa(i)))
			x := log.At(last)
			if i%2 == 1 {
				x = log.Since(last, events.TypeTurnAppended)
			}
			if i%3 == 0 {
				e.ID = fmt.Sprint("line:", i)
			}
			ack := retry(t, func() (log.Ack, error) { return l.Append(t.Context(), s, x, e) })
			if ack.Last != last+1 {
				t.Fatalf("decision %d is at %v, want %v", i, ack.Last, last+1)
			}
			last = ack.Last
		}
	})
}

// asyncUnderFaults sends many appends at once, and all of them again while one fails. The events stored in one round
// are in the order of the calls, and in the end each is stored once.
func asyncUnderFaults(t *testing.T, open func(*testing.T) log.Backend) {
	f := &Faulty{Backend: open(t), Next: Sometimes(5, 9, Dropped, AckLost)}
	l := OpenOn(t, f, log.Config{})
	s := session("s")
	failed := true
	for round := 0; failed && round < 200; round++ {
		var pending []*log.Pending
		for i := range 200 {
			pending = append(pending, l.AppendAsync(t.Context(), s, log.Any, turn(fmt.Sprint("line:", i), "x")))
		}
		failed = false
		last := events.Offset(0)
		for i, p := range pending {
			ack, err := p.Wait(t.Context())
			switch {
			case errors.Is(err, log.ErrUnknown), errors.Is(err, log.ErrAborted):
				failed = true
			case err != nil:
				t.Fatal(err)
			case !ack.Duplicate && ack.First <= last:
				t.Fatalf("line %d is at %v, an earlier call at %v", i, ack.First, last)
			case !ack.Duplicate:
				last = ack.Last
			}
		}
	}
	if failed {
		t.Fatal("some appends still fail")
	}
	mustHaveEachOnce(t, l, s, 200)
}
