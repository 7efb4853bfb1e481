package ailoop_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit/logtest"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
	"github.com/tallylog/tally/stores/ailoop"
)

// If the outcome of a save is unknown, the save is repeated until it is known. The snapshot is stored once.
func TestHistorySaveRepeated(t *testing.T) {
	for seed := range uint64(20) {
		st := storetest.Faulty(t, logtest.Sometimes(seed, 3, logtest.Dropped, logtest.AckLost, logtest.Twice, logtest.Late))
		h := ailoop.Of(st, "c")
		var s ailoop.Snapshot
		unsure := 0
		for i := range 12 {
			if i%5 == 4 {
				s = talk(fmt.Sprint("instead ", i)) // a replacement
			} else {
				s = s.Append(ailoop.UserMessage(fmt.Sprint(i)))
			}
			err := h.Save(t.Context(), s)
			for errors.Is(err, log.ErrUnknown) {
				unsure++
				err = h.Save(t.Context(), s)
			}
			if err != nil {
				t.Fatalf("seed %d, save %d: %v", seed, i, err)
			}
		}
		wantSnapshot(t, mustLoad(t, ailoop.Of(st, "c")), s)
		turns := 0
		for _, rec := range historyRecords(t, st, h.Subject()) {
			if events.IsThread(rec.Type) {
				turns++
			}
		}
		if turns != 12 {
			t.Errorf("seed %d: got %d events for 12 saves, %d of them repeated", seed, turns, unsure)
		}
	}
}

// If a save was stored without an answer, another save is a conflict until the history is loaded.
func TestHistorySaveUnheard(t *testing.T) {
	backend := &hangingUp{Backend: memlog.New(memlog.Config{})}
	st, err := tally.Open(t.Context(), logtest.OpenOn(t, backend, log.Config{}), tally.Config{})
	if err != nil {
		t.Fatal(err)
	}
	h := ailoop.Of(st, "c")
	mustSave(t, h, talk("a"))
	ctx, cancel := context.WithCancel(t.Context())
	backend.hangUp = cancel
	if err := h.Save(ctx, talk("a", "b")); !errors.Is(err, log.ErrUnknown) {
		t.Fatalf("got the error %v", err)
	}
	backend.hangUp = nil
	if err := h.Save(t.Context(), talk("a", "c")); !errors.Is(err, log.ErrConflict) {
		t.Errorf("got the error %v", err)
	}
	wantSnapshot(t, mustLoad(t, h), talk("a", "b"))
	mustSave(t, h, talk("a", "b", "c"))
}

// hangingUp stores a published event and closes the connection without an answer.
type hangingUp struct {
	log.Backend
	hangUp func()
}

func (b *hangingUp) Publish(ctx context.Context, p log.Publication) (log.Receipt, error) {
	receipt, err := b.Backend.Publish(ctx, p)
	if b.hangUp != nil {
		b.hangUp()
		return log.Receipt{}, log.ErrUnknown
	}
	return receipt, err
}

// A save was stored without an answer and then rewound, so it is not in effect. The log reports its repetition as a
// duplicate. That is a conflict: a snapshot that no reader sees is not reported as saved.
func TestHistorySaveUnheardAndRewound(t *testing.T) {
	backend := &hangingUp{Backend: memlog.New(memlog.Config{})}
	st, err := tally.Open(t.Context(), logtest.OpenOn(t, backend, log.Config{}), tally.Config{})
	if err != nil {
		t.Fatal(err)
	}
	h := ailoop.Of(st, "c")
	mustSave(t, h, talk("a"))
	before, err := h.Session().Load(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	backend.hangUp = cancel
	if err := h.Save(ctx, talk("a", "b")); !errors.Is(err, log.ErrUnknown) {
		t.Fatalf("got the error %v", err)
	}
	backend.hangUp = nil
	other := ailoop.Of(st, "c")
	wantSnapshot(t, mustLoad(t, other), talk("a", "b"))
	back, err := other.Session().PlanRewind(t.Context(), before.Offset().String(), "not that")
	if err == nil {
		_, err = other.Session().Move(t.Context(), back)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Save(t.Context(), talk("a", "b")); !errors.Is(err, log.ErrConflict) {
		t.Errorf("repeat a save that was rewound: %v", err)
	}
	wantSnapshot(t, mustLoad(t, ailoop.Of(st, "c")), talk("a"))
	wantSnapshot(t, mustLoad(t, h), talk("a")) // resolves the conflict
	mustSave(t, h, talk("a", "b"))
	wantSnapshot(t, mustLoad(t, ailoop.Of(st, "c")), talk("a", "b"))
}
