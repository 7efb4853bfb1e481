package log_test

import (
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/logtest"
)

// TestIDsOfOneHash has the look-up hit the wrong record: it must find the right one.
func TestIDsOfOneHash(t *testing.T) {
	l := logtest.Open(t)
	a := events.Session("", "a")
	for i, id := range []string{"x", "y", "z"} {
		if ack := mustAppend(t, l, a, note(id, id)); ack.Last != events.Offset(i+1) {
			t.Fatalf("%s is at %v", id, ack.Last)
		}
	}
	l.MisplaceIDs(a, 1)
	for i, id := range []string{"x", "y", "z"} {
		if ack := mustAppend(t, l, a, note(id, id)); !ack.Duplicate || ack.Last != events.Offset(i+1) {
			t.Fatalf("%s again: %+v", id, ack)
		}
	}
}

// TestTwoLogsOnOneBackend has each find what the other appended, whatever it knew.
func TestTwoLogsOnOneBackend(t *testing.T) {
	mem := logtest.NewMem(logtest.MemConfig{})
	one, two := logtest.OpenOn(t, mem, log.Config{}), logtest.OpenOn(t, shared{mem}, log.Config{})
	a := events.Session("", "a")
	for i := range 10 {
		id := string(rune('a' + i))
		first := mustAppend(t, one, a, note(id, id))
		mustAppend(t, two, a, note("", "between"))
		again := mustAppend(t, two, a, note(id, id))
		if !again.Duplicate || again.Last != first.Last {
			t.Fatalf("%s again: %+v, want %+v", id, again, first)
		}
	}
}

// shared is a backend that a log does not close.
type shared struct{ *logtest.Mem }

func (shared) Close() error { return nil }

func TestOpenWithoutABackendPanics(t *testing.T) {
	for name, open := range map[string]func(){
		"OpenOn": func() { log.OpenOn(t.Context(), nil, log.Config{}) },
		"Open":   func() { log.Open(t.Context(), nil, log.Config{}) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s without anything to open does not panic", name)
				}
			}()
			open()
		}()
	}
}
