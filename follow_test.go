package tally_test

import (
	"context"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit/storetest"
)

// Follow yields the records of one session after an offset, also if the session does not exist yet.
func TestSessionFollow(t *testing.T) {
	st := storetest.Memory(t, tally.Config{})
	s := st.Session("followed")
	mustTurn := func(id string) events.Offset {
		ack, err := st.Session(id).AppendTurns(t.Context(), events.MainThread, []byte(`{"role":"user","content":"hi"}`))
		if err != nil {
			t.Fatal(err)
		}
		return ack.Last
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	seen := make(chan events.Offset)
	go func() {
		defer close(seen)
		for rec, err := range s.Follow(ctx, 0) {
			if err != nil {
				t.Error(err)
				return
			}
			seen <- rec.Offset
		}
	}()
	mustTurn("other")
	first := mustTurn("followed")
	mustTurn("other")
	second := mustTurn("followed")
	for _, want := range []events.Offset{first, second} {
		if got := <-seen; got != want {
			t.Errorf("followed %v, want %v", got, want)
		}
	}
	stop()
	if at, more := <-seen; more {
		t.Errorf("Follow yielded %v after its context ended", at)
	}
	for rec, err := range s.Follow(t.Context(), first) {
		if err != nil || rec.Offset != second {
			t.Errorf("Follow after %v yielded %v, %v, want %v", first, rec.Offset, err, second)
		}
		break
	}
}
