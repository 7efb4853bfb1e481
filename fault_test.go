package tally_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit/logtest"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// An append without an answer is sent again and stored once.
func TestFaults(t *testing.T) {
	storetest.EachFault(t, func(t *testing.T, st *tally.Store, call storetest.Call) {
		ctx, s, turn := t.Context(), st.Session("s"), json.RawMessage(`"x"`)
		appended := func(_ log.Ack, err error) error { return err }
		call("Create", 1, func() error {
			return appended(s.Create(ctx, events.SessionCreated{Kind: events.KindConversation, CreatedAt: "2026-01-01T00:00:00Z"}))
		})
		call("AppendTurns", 1, func() error { return appended(s.AppendTurns(ctx, "main", turn)) })
		call("AppendTurns, large", 3+1, func() error {
			return appended(s.AppendTurns(ctx, "main", json.RawMessage(`"`+string(bytes.Repeat([]byte("x"), 2*events.MaxBlobPart-2))+`"`)))
		})
		call("Append", 2, func() error { return appended(s.Append(ctx, log.Any, cost, cost)) })
		call("Update", 1, func() error {
			return appended(s.Update(ctx, nil, func(*projector.Outline) ([]events.Payload, error) { return []events.Payload{cost}, nil }))
		})
		call("AddCost", 1, func() error { return appended(s.AddCost(ctx, tally.Cost{Model: "m", USD: "1"})) })
		call("AddCost, twice", 1, func() error {
			for range 2 {
				if _, err := s.AddCost(ctx, tally.Cost{Model: "m", USD: "1", Run: events.RunRef{Kind: "panel", ID: "r"}}); err != nil {
					return err
				}
			}
			return nil
		})
		call("Move", 1, func() error {
			m, err := s.PlanRewind(ctx, "#1", "")
			if err != nil {
				return err
			}
			return appended(s.Move(ctx, m))
		})
		call("Fork", 1, func() error { _, ack, err := s.Fork(ctx, "", "fork"); return appended(ack, err) })
		call("Store.Append", 1, func() error {
			doc := events.Document(st.Namespace(), "note", "n")
			return appended(st.Append(ctx, doc, log.At(0), events.Event{Type: events.TypeDocumentWritten, ContentType: "text/plain", Data: []byte("text")}))
		})
		call("PutBlob", 1, func() error { _, err := st.PutBlob(ctx, []byte("content")); return err })
	})
}

// If no answer comes, an append ends after a number of tries, and at once when its context has ended.
func TestOutcomeUnknown(t *testing.T) {
	tries := 0
	st := storetest.Faulty(t, func() logtest.Fault { tries++; return logtest.Dropped })
	if _, err := st.Session("s").AppendTurns(t.Context(), "main", json.RawMessage(`1`)); !errors.Is(err, log.ErrUnknown) || tries != 8 {
		t.Errorf("got %v after %d tries, want ErrUnknown after 8", err, tries)
	}
	ctx, cancel := context.WithCancel(t.Context())
	tries = 0
	st = storetest.Faulty(t, func() logtest.Fault {
		if tries++; tries == 2 {
			cancel()
		}
		return logtest.Dropped
	})
	if _, err := st.Session("s").AppendTurns(ctx, "main", json.RawMessage(`1`)); !errors.Is(err, log.ErrUnknown) || tries != 2 {
		t.Errorf("cancelled: got %v after %d tries, want ErrUnknown after 2", err, tries)
	}
}

// An earlier append that fails, as with a conflict of an attached process, does not affect the appends behind it.
func TestBehindAConflict(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *tally.Store) {
		s := st.Session("s")
		mustTurns(t, s, "first")
		for i := range 100 {
			other := st.Log.AppendAsync(t.Context(), s.Subject(), log.At(0), mustEvent(t, s, cost))
			mustTurns(t, s, "turn")
			if _, err := other.Wait(t.Context()); !errors.Is(err, log.ErrConflict) {
				t.Fatalf("round %d: got %v, want ErrConflict", i, err)
			}
		}
	})
}
