package perstack_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/logtest"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/stores/perstack"
)

// Flush returns when all text is stored, including text that the handle's timer is storing.
func TestFlushWaitsForTheTimer(t *testing.T) {
	testkit.Long(t)
	begun, release := make(chan struct{}), make(chan struct{})
	begin := sync.OnceFunc(func() { close(begun) })
	var stored atomic.Bool
	st := storetest.Faulty(t, func() logtest.Fault {
		begin()
		<-release
		stored.Store(true)
		return logtest.None
	})
	h := perstack.JobWith(st, "j", perstack.Options{Deltas: perstack.SampleDeltas})
	need(h.Record(t.Context(), event("j", "r", "d", "streamReasoning", 1, 1, events.Field{Name: "delta", Value: events.Raw(`"text"`)})))
	<-begun // by the timer
	early := make(chan bool, 1)
	go func() {
		err := h.Flush(t.Context())
		early <- err != nil || !stored.Load()
	}()
	select {
	case <-early:
		t.Error("Flush returned before the text was stored")
	case <-time.After(20 * time.Millisecond): // long enough to notice an early return
		close(release)
		if <-early {
			t.Error("Flush failed, or returned before the text was stored")
		}
		return
	}
	close(release)
}
