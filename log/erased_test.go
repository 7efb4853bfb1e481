package log_test

import (
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit/logtest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
)

// The same event as an erased one is a duplicate, whatever its data. Nobody appends an erased event.
func TestErasedEventAgain(t *testing.T) {
	sub := events.Session("", "s")
	e := events.Event{ID: "1", Source: "urn:x", Type: "com.acme.noted.v1", Subject: sub, Data: []byte(`{"text":"SECRET"}`)}
	erased, err := e.Erase("r7k2p9")
	if err != nil {
		t.Fatal(err)
	}
	backend := memlog.New(memlog.Config{})
	l := logtest.OpenOn(t, backend, log.Config{})
	if _, err := l.Append(t.Context(), sub, log.Any, erased); err == nil {
		t.Error("an erased event was appended")
	}
	message := log.Outgoing{ID: erased.MsgID(), Header: events.AppendHeader(nil, erased), Data: []byte("          ")}
	if _, err := backend.Publish(t.Context(), log.Publication{Writes: []log.Write{{Subject: sub.NATS(), Messages: []log.Outgoing{message}}}}); err != nil {
		t.Fatal(err)
	}
	for _, expect := range []log.Expect{log.Any, log.At(0), log.Since(0, "com.acme.other.v1")} {
		again := logtest.OpenOn(t, backend, log.Config{}) // it does not remember the event
		if ack, err := again.Append(t.Context(), sub, expect, e); err != nil || !ack.Duplicate || ack.Last != 1 {
			t.Errorf("the same event again, expected %v: got %+v, %v", expect, ack, err)
		}
		other := e
		other.Type = "com.acme.other.v1"
		if ack, err := again.Append(t.Context(), sub, expect, other); err == nil {
			t.Errorf("an event of another type with this identity, expected %v: got %+v", expect, ack)
		}
	}
}
