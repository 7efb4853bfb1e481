package log_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
)

// Bulk is true until the last event of a large series is acknowledged. Small series do not count.
func TestLargeSeriesAreAnnounced(t *testing.T) {
	d := &disk{}
	l := committing(t, d)
	release := d.holdBack()
	defer release()
	done := make(chan error, 3)
	series := func(id string, size int) {
		e := someTurn(id)
		e.Data = fmt.Appendf(nil, `{"entries":[{"thread":"main","turn":"%s"}]}`, strings.Repeat("x", size))
		_, _, err := l.AppendSeries(t.Context(), events.Session("", id), log.At(0), someTurn("0"), e)
		done <- err
	}
	go series("small", 100)
	for {
		if head, err := l.Head(t.Context()); err != nil {
			t.Fatal(err)
		} else if head == 2 {
			break
		}
	}
	if l.Bulk() {
		t.Fatal("Bulk is true for a small series")
	}
	go series("a", 100<<10)
	go series("b", 100<<10)
	for !l.Bulk() {
		runtime.Gosched()
	}
	time.Sleep(20 * time.Millisecond)
	if !l.Bulk() {
		t.Fatal("Bulk is false before the series are acknowledged")
	}
	release()
	for range 3 {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	if l.Bulk() {
		t.Fatal("Bulk is true after the series were acknowledged")
	}
}
