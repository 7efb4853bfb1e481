package logtest_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/logtest"
)

func turn(id, text string) events.Event {
	return events.Event{
		ID: id, Source: "test://faulty", Type: events.TypeTurnAppended,
		Data: []byte(`{"entries":[{"thread":"main","turn":` + strconv.Quote(text) + `}]}`),
	}
}

// TestRetryAfterUnknown appends under faults and retries whatever did not get an
// answer: in the end each event is there once, in the order of its writer.
func TestRetryAfterUnknown(t *testing.T) {
	for _, fault := range []logtest.Fault{logtest.Dropped, logtest.AckLost, logtest.Late, logtest.Twice} {
		for name, id := range map[string]func(w, i int) string{
			"young": func(int, int) string { return "" },
			"old":   func(w, i int) string { return fmt.Sprintf("w%d-%d", w, i) },
		} {
			t.Run(fault.String()+"/"+name, func(t *testing.T) {
				t.Parallel()
				f := &logtest.Faulty{Backend: logtest.NewMem(logtest.MemConfig{}), Next: logtest.Sometimes(7, 3, fault)}
				retryUntilAcked(t, logtest.OpenOn(t, f, log.Config{}), id)
			})
		}
	}
}

const (
	writers = 3
	each    = 60
)

func retryUntilAcked(t *testing.T, l *log.Log, id func(w, i int) string) {
	s := events.Session("", "s")
	acked := make([][]log.Ack, writers)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				evs := []events.Event{l.Stamp(turn(id(w, i), fmt.Sprintf("w%d-%d", w, i)))}
				if i%4 == 0 {
					evs = append(evs, l.Stamp(turn(id(w, i+1000), "and")))
				}
				acked[w] = append(acked[w], mustRetry(t, l, s, log.Any, evs...))
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

// mustRetry appends until there is an answer.
func mustRetry(t *testing.T, l *log.Log, s events.Subject, x log.Expect, evs ...events.Event) log.Ack {
	for range 100 {
		ack, err := l.Append(t.Context(), s, x, evs...)
		if err == nil {
			return ack
		}
		if !errors.Is(err, log.ErrUnknown) {
			t.Errorf("append: %v", err)
			return log.Ack{}
		}
	}
	t.Error("a hundred tries were not enough")
	return log.Ack{}
}

// TestExpectationsUnderFaults retries decisions: none is made twice, none is lost.
func TestExpectationsUnderFaults(t *testing.T) {
	for _, fault := range []logtest.Fault{logtest.Dropped, logtest.AckLost, logtest.Late, logtest.Twice} {
		t.Run(fault.String(), func(t *testing.T) {
			t.Parallel()
			f := &logtest.Faulty{Backend: logtest.NewMem(logtest.MemConfig{}), Next: logtest.Sometimes(3, 2, fault)}
			l := logtest.OpenOn(t, f, log.Config{})
			s := events.Session("", "s")
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
				ack := mustRetry(t, l, s, x, e)
				if ack.Last != last+1 {
					t.Fatalf("decision %d is at %v, want %v", i, ack.Last, last+1)
				}
				last = ack.Last
			}
		})
	}
}

// TestAsyncUnderFaults sends many at once, and everything again as long as one
// failed: what was stored in one round is in the order of the calls, and in the end
// each is there once.
func TestAsyncUnderFaults(t *testing.T) {
	f := &logtest.Faulty{Backend: logtest.NewMem(logtest.MemConfig{}), Next: logtest.Sometimes(5, 9, logtest.Dropped, logtest.AckLost)}
	l := logtest.OpenOn(t, f, log.Config{})
	s := events.Session("", "s")
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
				t.Fatalf("line %d is at %v, one called before at %v", i, ack.First, last)
			case !ack.Duplicate:
				last = ack.Last
			}
		}
	}
	seen := make(map[string]bool)
	for rec, err := range l.Read(t.Context(), events.Range{Subject: s}) {
		if err != nil || seen[rec.ID] {
			t.Fatalf("%v: %s again, or %v", rec.Offset, rec.ID, err)
		}
		seen[rec.ID] = true
	}
	if failed || len(seen) != 200 {
		t.Fatalf("%d records, want 200; still failing: %v", len(seen), failed)
	}
}

// TestIDsBeyondTheWindow lets the backend forget what it stored.
func TestIDsBeyondTheWindow(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	clock := func() time.Time { return now }
	l := logtest.OpenOn(t, logtest.NewMem(logtest.MemConfig{Now: clock}), log.Config{Now: clock})
	s := events.Session("", "s")
	young := turn("019b7d1c-1d88-7000-8000-000000000000", "x") // 2026-01-02T03:04:05Z, about
	old := turn("any", "x")
	first, err := l.Append(t.Context(), s, log.Any, young, old)
	if err != nil {
		t.Fatal(err)
	}
	for _, later := range []time.Duration{time.Second, 3 * time.Minute, 365 * 24 * time.Hour} {
		now = now.Add(later)
		again, err := l.Append(t.Context(), s, log.Any, young, old)
		if err != nil || !again.Duplicate || again.First != first.First || again.Last != first.Last {
			t.Fatalf("%v later: %+v, %v, want %+v again", later, again, err, first)
		}
	}
}

// TestContextEndsWaiting gives up an append in the queue and one under way.
func TestContextEndsWaiting(t *testing.T) {
	block := make(chan struct{})
	b := &blocking{Mem: logtest.NewMem(logtest.MemConfig{}), release: block, entered: make(chan struct{}, 8)}
	l := logtest.OpenOn(t, b, log.Config{})
	s := events.Session("", "s")
	ctx, cancel := context.WithCancel(t.Context())
	under := l.AppendAsync(ctx, s, log.Any, turn("", "under way"))
	<-b.entered
	queued := make(chan error)
	waiting, giveUp := context.WithCancel(t.Context())
	go func() {
		_, err := l.Append(waiting, s, log.Any, turn("", "queued"))
		queued <- err
	}()
	if _, err := under.Wait(waitCancelled()); !errors.Is(err, context.Canceled) {
		t.Fatalf("a given-up Wait: %v", err)
	}
	giveUp()
	if err := <-queued; !errors.Is(err, context.Canceled) || errors.Is(err, log.ErrUnknown) {
		t.Fatalf("a given-up append in the queue: %v", err)
	}
	cancel()
	if _, err := under.Wait(t.Context()); !errors.Is(err, log.ErrUnknown) {
		t.Fatalf("a given-up append under way: %v, want ErrUnknown", err)
	}
	close(block)
	if _, err := l.Append(t.Context(), s, log.Any, turn("", "new")); err != nil {
		t.Fatal(err)
	}
}

func waitCancelled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// blocking publishes when it is released, or does not say when its caller gives up.
type blocking struct {
	*logtest.Mem
	release, entered chan struct{}
}

func (b *blocking) Publish(ctx context.Context, p log.Publication) (log.Receipt, error) {
	b.entered <- struct{}{}
	select {
	case <-b.release:
		return b.Mem.Publish(ctx, p)
	case <-ctx.Done():
		return log.Receipt{}, log.ErrUnknown
	}
}
