package ingest

import (
	"testing"
	"testing/synctest"

	"github.com/tallylog/tally/events"
)

// A user that waited before is no part of a circle.
func TestPoolWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pool
		p.init()
		first, second := events.Session("", "first"), events.Session("", "second")
		take := func(sub, user events.Subject) {
			if _, err := p.take(sub, user, true); err != nil {
				t.Errorf("%v waits for %v: %v", user, sub, err)
			}
		}
		take(second, second)
		done := make(chan bool)
		go func() { take(second, first); close(done) }()
		synctest.Wait()
		p.give(second, true)
		<-done
		p.give(second, true)
		take(second, second)
		take(first, first)
		done = make(chan bool)
		go func() { take(first, second); close(done) }()
		synctest.Wait()
		p.give(first, true)
		<-done
	})
}
