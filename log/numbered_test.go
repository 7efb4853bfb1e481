package log_test

import (
	"errors"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
)

// A request of a series is stored only if the request before it was stored.
func TestAppendBehindOneThatFailed(t *testing.T) {
	l, err := log.OpenOn(t.Context(), memlog.New(memlog.Config{}), log.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	sub := events.Session("", "s")
	if _, err := l.AppendBehind(t.Context(), log.ErrUnknown, sub, note("", "x")).Wait(t.Context()); !errors.Is(err, log.ErrAborted) {
		t.Errorf("after a failed append: got %v, want ErrAborted", err)
	}
	if ack, err := l.AppendBehind(t.Context(), nil, sub, note("", "y")).Wait(t.Context()); err != nil || ack.First != 1 {
		t.Errorf("after a stored append: got %+v, %v, want offset 1", ack, err)
	}
}
