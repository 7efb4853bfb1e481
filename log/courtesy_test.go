package log_test

import (
	"sync"
	"testing"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
)

// mustFollow follows a subject until the test is over.
func mustFollow(t *testing.T, l *log.Log, r events.Range) <-chan events.Offset {
	t.Helper()
	seen := make(chan events.Offset, 256)
	var running sync.WaitGroup
	running.Go(func() {
		for rec, err := range l.Follow(t.Context(), r) {
			if err != nil {
				return
			}
			seen <- rec.Offset
		}
	})
	t.Cleanup(running.Wait) // the test's context has ended by then
	return seen
}

// A follower does not start a sync at once for records that were appended without one: the sync that the producer asks
// for soon is enough.
func TestFollowerLetsProducersSync(t *testing.T) {
	log.SetCourtesy(t, time.Hour)
	d := &disk{}
	l := committing(t, d)
	sub := events.Session("n", "s")
	early, safe := mustFollow(t, l, events.Range{Subject: sub, Buffered: true}), mustFollow(t, l, events.Range{Subject: sub})
	before, began := d.count(), time.Now()
	const pairs = 40
	for range pairs {
		if _, err := l.AppendBuffered(t.Context(), sub, log.Any, someTurn(l.NewID())); err != nil {
			t.Fatal(err)
		}
		<-early // the other follower has it by now, too
		if _, err := l.Append(t.Context(), sub, log.Any, someTurn(l.NewID())); err != nil {
			t.Fatal(err)
		}
		<-early
		<-safe
		<-safe
	}
	own := 1 + int(time.Since(began)/time.Second) // the log syncs by itself each second
	if n := d.count() - before; n > pairs+own {
		t.Errorf("%d syncs, want at most one for each of %d durable appends", n, pairs)
	}
}

// If no producer asks for a sync, a follower starts one, long before the log does so by itself.
func TestFollowerSyncsInTheEnd(t *testing.T) {
	l := committing(t, &disk{})
	sub := events.Session("n", "s")
	safe := mustFollow(t, l, events.Range{Subject: sub})
	const some = 20
	began := time.Now()
	for range some {
		if _, err := l.AppendBuffered(t.Context(), sub, log.Any, someTurn(l.NewID())); err != nil {
			t.Fatal(err)
		}
		<-safe
	}
	if took := time.Since(began); took > some*time.Second/2 { // the log by itself syncs once a second
		t.Errorf("%d records were followed in %v, want a sync for each without the log's delay", some, took)
	}
}
