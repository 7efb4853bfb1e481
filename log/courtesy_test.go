package log_test

import (
	"testing"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
)

// Who follows has no sync begun at once for what was appended without asking for one: that
// which the producer asks for soon is enough. If none comes the follower sees it all the same,
// long before the log would sync it by itself.
func TestFollowerLetsProducersSync(t *testing.T) {
	d := &disk{}
	l := committing(t, d)
	sub := events.Session("n", "s")
	follow := func(buffered bool) <-chan events.Offset {
		seen := make(chan events.Offset, 256)
		go func() {
			for rec, err := range l.Follow(t.Context(), events.Range{Subject: sub, Buffered: buffered}) {
				if err != nil {
					return
				}
				seen <- rec.Offset
			}
		}()
		return seen
	}
	early, safe := follow(true), follow(false)
	before := d.count()
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
	if n := d.count() - before; n > pairs+pairs/4 { // the log's own, and where the machine was slow
		t.Errorf("%d syncs for %d appends that asked for one", n, pairs)
	}
	began := time.Now()
	if _, err := l.AppendBuffered(t.Context(), sub, log.Any, someTurn(l.NewID())); err != nil {
		t.Fatal(err)
	}
	if <-safe; time.Since(began) > 500*time.Millisecond {
		t.Errorf("the follower saw it after %v", time.Since(began))
	}
}
