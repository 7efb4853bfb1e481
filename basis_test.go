package tally_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
	"github.com/tallylog/tally/projector"
)

// An append through a handle is stale if another handle rewound the handle's basis: how much was read or written
// through it.
func TestSessionRemembers(t *testing.T) {
	answer := func(t *testing.T, s *tally.Session) log.Ack {
		t.Helper()
		ack, err := s.AppendTurns(t.Context(), events.MainThread, json.RawMessage(`"answer"`))
		must(t, err)
		return ack
	}
	rewind := func(t *testing.T, s *tally.Session) {
		t.Helper()
		m, err := s.PlanRewind(t.Context(), "#1", "")
		mustMove(t, s, m, err)
	}
	storetest.Each(t, func(t *testing.T, st *tally.Store) {
		s, other := st.Session("s"), st.Session("s")
		for _, turn := range []string{"a", "b", "c"} {
			mustTurns(t, s, turn)
		}
		rewind(t, other)
		if ack := answer(t, s); !ack.Stale {
			t.Errorf("append after another handle rewound written turns: got %+v, want stale", ack)
		}
		if ack := answer(t, s); !ack.Stale {
			t.Errorf("second append without a read: got %+v, want stale", ack)
		}
		mustBe(t, s, "head", "a") // it looks
		if ack := answer(t, s); ack.Stale {
			t.Errorf("append after a read: got %+v, want not stale", ack)
		}
		reader := st.Session("s")
		o, err := reader.Outline(t.Context())
		must(t, err)
		if o.Len(events.MainThread) != 2 {
			t.Errorf("got %d turns, want 2", o.Len(events.MainThread))
		}
		rewind(t, other)
		if ack := answer(t, reader); !ack.Stale {
			t.Errorf("append after another handle rewound read turns: got %+v, want stale", ack)
		}
		if ack, err := s.Append(t.Context(), log.Any, cost); err != nil || !ack.Stale {
			t.Errorf("cost of rewound turns: got %+v, %v, want stale", ack, err)
		}
		if ack := answer(t, st.Session("s")); ack.Stale {
			t.Errorf("append by a handle without a basis: got %+v, want not stale", ack)
		}
		rewind(t, s) // its own move
		if ack := answer(t, s); ack.Stale {
			t.Errorf("append after the handle's own rewind: got %+v, want not stale", ack)
		}
		mustBe(t, st.Session("s"), "", "a", "answer")
		if _, err := s.Load(t.Context(), "#1"); err != nil { // an earlier position is not what the session is now
			t.Fatal(err)
		}
		rewind(t, other)
		if ack := answer(t, s); !ack.Stale {
			t.Errorf("append after a read of an earlier position: got %+v, want stale", ack)
		}
	})
}

// What a handle read stays known while only the handle itself changes the threads.
func TestUnchanged(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *tally.Store) {
		s, other := st.Session("s"), st.Session("s")
		want := func(when string, known bool) {
			t.Helper()
			expect, err := s.Unchanged(t.Context())
			if err == nil && !known { // the append finds out
				_, err = s.Append(t.Context(), expect, &events.ThreadTruncated{Lengths: map[string]int{events.MainThread: 0}, Reason: "clear"})
			}
			if (err == nil) != known || err != nil && !errors.Is(err, log.ErrConflict) || known && expect == log.Any {
				t.Errorf("%s: got %v, %v, want unchanged %v", when, expect, err, known)
			}
		}
		if expect, err := s.Unchanged(t.Context()); err != nil || expect != log.Any {
			t.Errorf("before any read: got %v, %v, want any", expect, err)
		}
		mustTurns(t, other, "a", "b")
		mustBe(t, s, "head", "a", "b")
		want("read", true)
		mustTurns(t, s, "c")
		mustTurns(t, s, "d")
		if _, err := other.Append(t.Context(), log.Any, cost); err != nil {
			t.Fatal(err)
		}
		want("the handle's own turns, and a cost", true)
		mustTurns(t, other, "e")
		want("another handle's turn", false)
		mustBe(t, s, "head", "a", "b", "c", "d", "e")
		want("read again", true)
		m, err := other.PlanRewind(t.Context(), "#1", "")
		mustMove(t, other, m, err)
		want("another handle's rewind", false)
		_, err = s.Update(t.Context(), projector.MoveTypes(), func(now *projector.Outline) ([]events.Payload, error) {
			return []events.Payload{&events.ThreadTruncated{Lengths: map[string]int{events.MainThread: 0}, Reason: "clear"}}, nil
		})
		must(t, err)
		want("the handle's own decision", true)
	})
}

// readBefore is a Backend that calls a function when it has stored an append, before it answers.
type readBefore struct {
	*memlog.Backend
	then func()
}

func (b *readBefore) Publish(ctx context.Context, p log.Publication) (log.Receipt, error) {
	r, err := b.Backend.Publish(ctx, p)
	if then := b.then; then != nil {
		b.then = nil
		then()
	}
	return r, err
}

// A handle that reads its own append before the answer to it came counts it once.
func TestUnchangedWhileReading(t *testing.T) {
	b := &readBefore{Backend: memlog.New(memlog.Config{})}
	s := on(t, b, tally.Config{}).Session("s")
	mustTurns(t, s, "a")
	mustBe(t, s, "head", "a")
	b.then = func() { mustBe(t, s, "head", "a", "b") }
	mustTurns(t, s, "b")
	expect, err := s.Unchanged(t.Context())
	if err != nil || expect == log.Any {
		t.Errorf("nobody else changed the threads: got %v, %v", expect, err)
	}
}
