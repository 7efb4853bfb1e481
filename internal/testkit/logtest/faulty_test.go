package logtest_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit/logtest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
)

func turn(id, text string) events.Event {
	return events.Event{
		ID: id, Source: "test://faulty", Type: events.TypeTurnAppended,
		Data: []byte(`{"entries":[{"thread":"main","turn":` + strconv.Quote(text) + `}]}`),
	}
}

func TestFaults(t *testing.T) {
	logtest.RunFaults(t, func(*testing.T) log.Backend { return memlog.New(memlog.Config{}) })
}

// TestMemTwice runs the suite on a network that delivers messages twice.
func TestMemTwice(t *testing.T) {
	logtest.Run(t, func(t *testing.T) *log.Log {
		f := &logtest.Faulty{Backend: memlog.New(memlog.Config{}), Next: logtest.Sometimes(11, 3, logtest.Twice)}
		return logtest.OpenOn(t, f, log.Config{})
	})
}

// TestIDsBeyondTheWindow checks ids that the backend has forgotten.
func TestIDsBeyondTheWindow(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	clock := func() time.Time { return now }
	l := logtest.OpenOn(t, memlog.New(memlog.Config{Now: clock}), log.Config{Now: clock})
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
			t.Fatalf("%v later: got %+v, error %v, want %+v again", later, again, err, first)
		}
	}
}

// TestContextEndsWaiting cancels an append in the queue and one under way.
func TestContextEndsWaiting(t *testing.T) {
	block := make(chan struct{})
	b := &blocking{Backend: memlog.New(memlog.Config{}), release: block, entered: make(chan struct{}, 8)}
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
		t.Fatalf("a cancelled Wait: %v", err)
	}
	giveUp()
	if err := <-queued; !errors.Is(err, context.Canceled) || errors.Is(err, log.ErrUnknown) {
		t.Fatalf("a cancelled append in the queue: %v", err)
	}
	cancel()
	if _, err := under.Wait(t.Context()); !errors.Is(err, log.ErrUnknown) {
		t.Fatalf("a cancelled append in progress: %v, want ErrUnknown", err)
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

// blocking publishes when it is released. If the caller's context ends before, the outcome is unknown.
type blocking struct {
	*memlog.Backend
	release, entered chan struct{}
}

func (b *blocking) Publish(ctx context.Context, p log.Publication) (log.Receipt, error) {
	b.entered <- struct{}{}
	select {
	case <-b.release:
		return b.Backend.Publish(ctx, p)
	case <-ctx.Done():
		return log.Receipt{}, log.ErrUnknown
	}
}
