package record

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
)

// A watch that has read everything sleeps until a line comes, and reports it within a moment.
func TestReporterRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tl := newReporter(&cmdutil.App{}, false)
		tl.caughtUp = true
		done, looks := make(chan struct{}), make(chan time.Time, 100)
		go func() {
			defer close(looks)
			for tl.await(done) {
				looks <- time.Now()
				tl.mu.Lock()
				for _, s := range tl.changed {
					s.queued = false
				}
				tl.changed = nil
				tl.mu.Unlock()
			}
		}()
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := len(looks); n > 0 {
			t.Errorf("got %d looks without a new line, want 0", n)
		}
		sub := events.Session("", "codex/one")
		e, err := events.New("urn:tally:agent:codex", sub, &events.TurnAppended{Entries: []events.Entry{{Thread: "log", Turn: events.Raw(`{}`)}}})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			came := time.Now()
			for range 3 {
				tl.seen(sub, []events.Event{e}, log.Ack{First: 1, Last: 1}, 1)
			}
			if took := (<-looks).Sub(came); took > pace {
				t.Errorf("a new line was reported after %v", took)
			}
			time.Sleep(time.Hour)
			synctest.Wait()
			for len(looks) > 1 { // at most once more, for a line that came during the look
				t.Errorf("got a further look at %v", <-looks)
			}
			for len(looks) > 0 {
				<-looks
			}
		}
		close(done)
		for range looks {
		}
	})
}
