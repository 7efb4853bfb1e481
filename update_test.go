package tally_test

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"sync"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// Concurrent Updates of one field lose no change.
func TestUpdateUnderContention(t *testing.T) {
	st := storetest.Memory(t, tally.Config{})
	s := st.Session("counter")
	const workers, times = 8, 5
	add := func(state *projector.Outline) ([]events.Payload, error) {
		n := 0
		if raw, ok := state.Ledger().Fields.Get("count"); ok {
			if err := json.Unmarshal(raw, &n); err != nil {
				return nil, err
			}
		}
		return []events.Payload{&events.SessionUpdated{Set: events.Fields{{Name: "count", Value: events.Raw(strconv.Itoa(n + 1))}}}}, nil
	}
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range times {
				for { // Update returns a conflict after maxDecisions tries
					_, err := s.Update(t.Context(), []string{events.TypeSessionUpdated}, add)
					if err == nil {
						break
					}
					if !errors.Is(err, log.ErrConflict) {
						t.Error(err)
						return
					}
				}
				mustTurns(t, s, "no conflict")
			}
		})
	}
	wg.Wait()
	state, err := s.Load(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if n, _ := state.Ledger.Fields.Get("count"); string(n) != strconv.Itoa(workers*times) || len(state.Threads.Turns("main")) != workers*times {
		t.Errorf("count is %s with %d turns, want %d for both", n, len(state.Threads.Turns("main")), workers*times)
	}
}

func TestUpdate(t *testing.T) {
	st := storetest.Memory(t, tally.Config{})
	s := st.Session("s")
	wrong := errors.New("wrong")
	update := func(types []string, decide func(*projector.Outline) ([]events.Payload, error)) (log.Ack, error) {
		return s.Update(t.Context(), types, decide)
	}
	if _, err := update(nil, func(*projector.Outline) ([]events.Payload, error) { return nil, wrong }); !errors.Is(err, wrong) {
		t.Errorf("error of decide: got %v, want it unchanged", err)
	}
	if ack, err := update(nil, func(*projector.Outline) ([]events.Payload, error) { return nil, nil }); err != nil || ack != (log.Ack{}) {
		t.Errorf("no payloads: got %+v, %v, want an empty ack", ack, err)
	}
	calls := 0
	ack, err := update(projector.MoveTypes(), func(state *projector.Outline) ([]events.Payload, error) {
		if calls++; calls == 1 {
			mustTurns(t, s, "somebody was first")
		}
		return []events.Payload{&events.TurnAppended{Entries: []events.Entry{{Thread: "main", Turn: events.Raw(strconv.Itoa(state.Len("main")))}}}}, nil
	})
	if err != nil || ack.First != 2 || calls != 2 {
		t.Errorf("got %+v after %d calls, %v, want offset 2 after 2", ack, calls, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err = s.Update(ctx, nil, func(*projector.Outline) ([]events.Payload, error) {
		mustTurns(t, s, "always first")
		cancel()
		return []events.Payload{cost}, nil
	})
	if !errors.Is(err, context.Canceled) && !errors.Is(err, log.ErrConflict) {
		t.Errorf("cancelled: got %v, want Canceled or ErrConflict", err)
	}
}
