package ailoop_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/stores/ailoop"
)

// writes is the number of messages that each of several writers adds.
const writes = 15

// addAll adds messages to a conversation with other writers. After a conflict it loads the conversation and decides
// again.
func addAll(ctx context.Context, h *ailoop.History, writer string) (conflicts int, err error) {
	for i := range writes {
		for {
			s, _, err := h.Load(ctx)
			if err != nil {
				return conflicts, err
			}
			err = h.Save(ctx, s.Append(ailoop.UserMessage(fmt.Sprint(writer, i))))
			if err == nil {
				break
			}
			if !errors.Is(err, log.ErrConflict) {
				return conflicts, err
			}
			conflicts++
		}
	}
	return conflicts, nil
}

// wantAll checks that each message of each writer is there once, in order.
func wantAll(t *testing.T, h ailoop.HistoryStore, writers ...string) {
	t.Helper()
	s := mustLoad(t, h)
	next := make(map[string]int)
	for i := range s.Len() {
		text := s.Message(i).Text()
		at := slices.IndexFunc(writers, func(w string) bool { return text == fmt.Sprint(w, next[w]) })
		if at < 0 {
			t.Fatalf("message %d is %q", i, text)
		}
		next[writers[at]]++
	}
	if s.Len() != writes*len(writers) {
		t.Errorf("got %d messages of %d writers, want %d each", s.Len(), len(writers), writes)
	}
}

// Two writers of one conversation lose no message: the second one gets a conflict, where the original overwrites.
func TestTwoWriters(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *tally.Store) {
		t.Run("H-17 two handles on one conversation", func(t *testing.T) {
			done := make(chan error)
			for _, writer := range []string{"a", "b"} {
				go func() {
					_, err := addAll(t.Context(), ailoop.Of(st, "shared"), writer)
					done <- err
				}()
			}
			if err := errors.Join(<-done, <-done); err != nil {
				t.Fatal(err)
			}
			wantAll(t, ailoop.Of(st, "shared"), "a", "b")
			if n := threadEvents(t, st, "shared"); n != 2*writes {
				t.Errorf("got %d events for %d saves", n, 2*writes)
			}
		})
	})
}

// threadEvents returns the number of revisions of a history.
func threadEvents(t *testing.T, st *tally.Store, id string) int {
	t.Helper()
	list, err := ailoop.Of(st, id).Revisions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// writerOf is the environment variable that makes a copy of the test a writer.
const writerOf = "TALLY_TEST_AILOOP_WRITER"

func TestTwoProcesses(t *testing.T) {
	dir := os.Getenv(writerOf + "_DIR")
	if dir == "" {
		dir = filepath.Join(t.TempDir(), "store")
	}
	st, err := embedded.Open(t.Context(), embedded.Options{Store: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	h := ailoop.Of(st, "shared")
	if writer := os.Getenv(writerOf); writer != "" {
		if _, err := addAll(t.Context(), h, writer); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Run("H-17 two processes on one conversation", func(t *testing.T) {
		other := exec.Command(os.Args[0], "-test.run=^TestTwoProcesses$")
		other.Env = append(os.Environ(), writerOf+"=b", writerOf+"_DIR="+dir)
		if err := other.Start(); err != nil {
			t.Fatal(err)
		}
		_, err := addAll(t.Context(), h, "a")
		if err := errors.Join(err, other.Wait()); err != nil {
			t.Fatal(err)
		}
		wantAll(t, h, "a", "b")
	})
}

// Overwrite starts a conversation again, whatever was saved.
func TestOverwrite(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *tally.Store) {
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		first := ailoop.Of(st, "c")
		must(first.Overwrite(t.Context(), talk("a", "b"))) // also for a missing history
		wantSnapshot(t, mustLoad(t, ailoop.Of(st, "c")), talk("a", "b"))
		h := ailoop.Of(st, "c") // of a program that starts again, and does not load
		if err := h.Save(t.Context(), talk("x")); !errors.Is(err, log.ErrConflict) {
			t.Errorf("save: %v", err)
		}
		must(h.Overwrite(t.Context(), talk("x")))
		must(h.Overwrite(t.Context(), talk("x"))) // no event is needed
		must(h.Save(t.Context(), talk("x", "y"))) // the handle knows the current state
		wantSnapshot(t, mustLoad(t, ailoop.Of(st, "c")), talk("x", "y"))
		if err := first.Save(t.Context(), talk("a", "b", "c")); !errors.Is(err, log.ErrConflict) {
			t.Errorf("a save by the writer whose history was overwritten: %v", err)
		}
		list, err := first.Revisions(t.Context())
		if err != nil || len(list) != 3 {
			t.Fatalf("got %v, error %v", list, err)
		}
		s, _, err := h.LoadAt(t.Context(), list[0].Offset.String())
		must(err)
		wantSnapshot(t, s, talk("a", "b"))
	})
}
