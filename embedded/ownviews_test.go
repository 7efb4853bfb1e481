package embedded_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/projector/view"
)

var countedVote = events.Define[string]("com.acme.vote.v1", events.WithThread)

var counted = view.Fold[int]{Name: "counted", Version: 1, Types: []events.Type{countedVote.Type}, Apply: func(n *int, _ projector.Fact) error { *n++; return nil }}

// A program's view is kept wherever the log is. Where no process keeps it, its state is folded from the log.
func TestViewsOfPrograms(t *testing.T) {
	home(t, nil)
	dir, server := filepath.Join(t.TempDir(), "store"), mustServe(t, "}")
	sub := events.Session("", "s")
	views := []view.View{counted.View()}
	expect := func(t *testing.T, st *tally.Store, want int) {
		t.Helper()
		if n, _, err := counted.Get(t.Context(), st, sub); err != nil || n != want {
			t.Errorf("got %d, %v, want %d", n, err, want)
		}
	}
	cast := func(t *testing.T, st *tally.Store) events.Offset {
		t.Helper()
		e, err := countedVote.New(sub, "a")
		if err != nil {
			t.Fatal(err)
		}
		ack, err := st.Append(t.Context(), sub, log.Any, e)
		if err != nil {
			t.Fatal(err)
		}
		return ack.Last
	}
	kept := func(t *testing.T, st *tally.Store, want int) {
		t.Helper()
		ctx, stop := context.WithTimeout(t.Context(), testkit.Patience(time.Minute))
		defer stop()
		if err := st.Wait(ctx, "counted", cast(t, st)); err != nil {
			t.Fatal(err)
		}
		expect(t, st, want)
	}
	t.Run("memory", func(t *testing.T) { kept(t, mustOpen(t, embedded.Options{Backend: "memory", Views: views}), 1) })
	t.Run("server", func(t *testing.T) {
		kept(t, mustOpen(t, embedded.Options{Backend: "nats", URL: server.ClientURL(), Views: views}), 1)
	})
	local := embedded.Options{Backend: "local", Store: dir, Views: views}
	t.Run("owner", func(t *testing.T) { kept(t, mustOpen(t, local), 1) })
	t.Run("still", func(t *testing.T) {
		still := local
		still.Still = true
		st := mustOpen(t, still)
		last := cast(t, st)
		if err := st.Wait(t.Context(), "counted", last); !errors.Is(err, tally.ErrNotFound) {
			t.Errorf("wait for a view that no process keeps: got %v, want ErrNotFound", err)
		}
		expect(t, st, 1) // as the view was left
	})
	t.Run("look", func(t *testing.T) {
		look := local
		look.Look, look.Existing = true, true
		st := mustOpen(t, look)
		expect(t, st, 1)
		if n, err := counted.At(t.Context(), st, sub, 0); err != nil || n != 2 {
			t.Errorf("At: got %d, %v, want 2", n, err)
		}
		head, err := st.Log.Head(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := st.Wait(t.Context(), "counted", head); !errors.Is(err, log.ErrNeedsServer) {
			t.Errorf("wait without a server: got %v, want ErrNeedsServer", err)
		}
	})
	t.Run("no store", func(t *testing.T) {
		none := embedded.Options{Backend: "local", Store: filepath.Join(t.TempDir(), "none"), Existing: true, Views: views}
		st := mustOpen(t, none)
		expect(t, st, 0)
		if _, err := st.View(t.Context(), "counted"); !errors.Is(err, tally.ErrNotFound) {
			t.Errorf("view without a file: got %v, want ErrNotFound", err)
		}
	})
	t.Run("owner ends", func(t *testing.T) {
		first, err := embedded.Open(t.Context(), embedded.Options{ConfigDir: t.TempDir(), Backend: "local", Store: dir})
		if err != nil {
			t.Fatal(err)
		}
		attached := mustOpen(t, local)
		kept(t, attached, 3)
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		if err := attached.Wait(t.Context(), "counted", 1_000); !errors.Is(err, log.ErrUnavailable) {
			t.Errorf("wait after the owner's end: got %v, want ErrUnavailable", err)
		}
		kept(t, mustOpen(t, local), 4) // whose lock the attached program has left
	})
}
