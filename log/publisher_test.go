package log

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// Appends that were given up are answered once, and nobody waits for their callers any more.
func TestGivenUpAppendsAreAnsweredOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &publisher{wait: time.Second, pending: make(map[uint64]chan<- answer)}
		first := make(chan answer, 1)
		p.pending[1] = first
		over := make(chan struct{})
		go func() {
			p.giveUp(ErrUnknown)
			p.giveUp(ErrUnavailable) // the connection ends later
			close(over)
		}()
		select {
		case <-over:
		case <-time.After(time.Minute):
			t.Error("an append that was given up is given up again")
			<-first // so that the goroutine ends
			<-over
		}
		if got := <-first; !errors.Is(got.err, ErrUnknown) {
			t.Errorf("got %v", got.err)
		}
		if len(p.pending) > 0 {
			t.Errorf("%d appends are still pending", len(p.pending))
		}
	})
}
