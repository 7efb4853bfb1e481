package log_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
)

// Who follows has no sync begun at once for what was appended without asking for one: that
// which the producer asks for soon is enough. If none comes the follower sees it all the same.
func TestFollowerLetsProducersSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{}
		l := committing(t, d)
		sub := events.Session("n", "s")
		seen := make(chan events.Offset, 8)
		go func() {
			for rec, err := range l.Follow(t.Context(), events.Range{Subject: sub}) {
				if err != nil {
					return
				}
				seen <- rec.Offset
			}
		}()
		synctest.Wait()
		before := d.count()
		if _, err := l.AppendBuffered(t.Context(), sub, log.Any, someTurn("1")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if d.count() != before || len(seen) > 0 {
			t.Fatalf("%d syncs, and %d records were seen", d.count()-before, len(seen))
		}
		if _, err := l.Append(t.Context(), sub, log.Any, someTurn("2")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := d.count() - before; n != 1 || len(seen) != 2 {
			t.Errorf("%d syncs, and %d records were seen", n, len(seen))
		}
		if _, err := l.AppendBuffered(t.Context(), sub, log.Any, someTurn("3")); err != nil {
			t.Fatal(err)
		}
		asked := time.Now()
		<-seen
		<-seen
		<-seen
		if took := time.Since(asked); took > 20*time.Millisecond {
			t.Errorf("the follower saw it after %v", took)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}
