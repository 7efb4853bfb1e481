package projector_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit/logtest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
	"github.com/tallylog/tally/projector"
)

// shelf is a view that stores the ids of its records, in memory that outlives the runner.
type shelf struct {
	mu      sync.Mutex // guards the fields below: tests read them while a runner works
	cursor  projector.Cursor
	stored  []string
	pending []string
	aside   []projector.Quarantine
	commits int
	resets  int
	refuse  func(projector.Fact) error
	broken  error // of commits

	misleading string // a commit with an end of the log before its position
}

func (s *shelf) Name() string { return "shelf" }

func (s *shelf) Begin(context.Context) (projector.Cursor, []projector.Quarantine, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending = nil
	return s.cursor, slices.Clone(s.aside), nil
}

func (s *shelf) Apply(_ context.Context, f projector.Fact) error {
	if s.refuse != nil {
		if err := s.refuse(f); err != nil {
			return err
		}
	}
	s.pending = append(s.pending, f.ID)
	return nil
}

func (s *shelf) Held() int64 { return int64(len(s.pending)) }

func (s *shelf) Quarantine(q projector.Quarantine) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.aside = append(s.aside, q)
}

func (s *shelf) Commit(_ context.Context, c projector.Cursor) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil {
		return s.broken
	}
	if c.Head < c.Offset {
		s.misleading = fmt.Sprintf("the view is at %v, and says that the log ends at %v", c.Offset, c.Head)
	}
	s.cursor, s.stored, s.pending = c, append(s.stored, s.pending...), nil
	s.commits++
	return nil
}

func (s *shelf) Reset(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cursor, s.stored, s.pending, s.aside = projector.Cursor{}, nil, nil, nil
	s.resets++
	return nil
}

func (s *shelf) Forget(_ context.Context, sub events.Subject) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.aside = slices.DeleteFunc(s.aside, func(q projector.Quarantine) bool { return q.Subject == sub })
	return nil
}

func (s *shelf) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.stored)
}

func (s *shelf) committed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.commits
}

func (s *shelf) has(t *testing.T, want ...string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.stored, want) {
		t.Errorf("view: got %v, want %v", s.stored, want)
	}
	if s.misleading != "" {
		t.Error(s.misleading)
	}
}

// onShelf runs a test with a log in memory, on a clock of its own.
func onShelf(t *testing.T, run func(t *testing.T, l *log.Log, mem *memlog.Backend)) {
	synctest.Test(t, func(t *testing.T) {
		mem := memlog.New(memlog.Config{})
		run(t, logtest.OpenOn(t, mem, log.Config{}), mem)
	})
}

// mustPut appends turns with the ids given.
func mustPut(t *testing.T, l *log.Log, sub events.Subject, ids ...string) {
	t.Helper()
	for _, id := range ids {
		e, err := events.New("urn:test", sub, aTurn(id))
		if err != nil {
			t.Fatal(err)
		}
		e.ID = id
		if _, err := l.Append(t.Context(), sub, log.Any, e); err != nil {
			t.Fatal(err)
		}
	}
}

// running starts a view; stop ends it.
func running(t *testing.T, r *projector.Runner) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { r.Run(ctx) })
	synctest.Wait()
	return func() { cancel(); wg.Wait() }
}

func TestRunnerCatchesUpAndGoesOn(t *testing.T) {
	onShelf(t, func(t *testing.T, l *log.Log, _ *memlog.Backend) {
		mustPut(t, l, s1, "a", "b")
		v := &shelf{}
		r := &projector.Runner{Log: l, View: v}
		stop := running(t, r)
		if err := r.Wait(t.Context(), 2); err != nil {
			t.Fatal(err)
		}
		v.has(t, "a", "b")
		mustPut(t, l, s2, "c")
		if err := r.Wait(t.Context(), 3); err != nil {
			t.Fatal(err)
		}
		v.has(t, "a", "b", "c")
		mustPut(t, l, s1, "d")
		stop() // records that were appended before are applied
		v.has(t, "a", "b", "c", "d")
		again := running(t, &projector.Runner{Log: l, View: v})
		again()
		v.has(t, "a", "b", "c", "d")
	})
}

func TestRunnerCommitsInBatches(t *testing.T) {
	onShelf(t, func(t *testing.T, l *log.Log, _ *memlog.Backend) {
		for i := range 10 {
			mustPut(t, l, s1, fmt.Sprint(i))
		}
		for _, c := range []struct {
			batch   int
			hold    int64
			commits int
		}{{4, 1 << 20, 3}, {0, 0, 1}, {100, 3, 4}} {
			v := &shelf{}
			r := &projector.Runner{Log: l, View: v, Batch: c.batch, Hold: c.hold}
			if err := r.CatchUp(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			if len(v.stored) != 10 || v.commits != c.commits {
				t.Errorf("batches of %d, %d held: got %d records in %d commits, want 10 in %d", c.batch, c.hold, len(v.stored), v.commits, c.commits)
			}
		}
	})
}

// A subject that cannot be folded, with an error or a panic, is quarantined. The others continue, and the next runner
// skips it too.
func TestRunnerQuarantines(t *testing.T) {
	for name, fails := range map[string]func() error{
		"error": func() error { return &projector.FoldError{Err: errors.New("cannot be")} },
		"panic": func() error { panic("cannot be") },
	} {
		t.Run(name, func(t *testing.T) {
			onShelf(t, func(t *testing.T, l *log.Log, _ *memlog.Backend) {
				mustPut(t, l, s1, "a")
				mustPut(t, l, s2, "b", "bad")
				mustPut(t, l, s1, "c")
				mustPut(t, l, s2, "d")
				v := &shelf{refuse: func(f projector.Fact) error {
					if f.ID == "bad" {
						return fails()
					}
					return nil
				}}
				r := &projector.Runner{Log: l, View: v}
				if err := r.CatchUp(t.Context(), nil); err != nil {
					t.Fatal(err)
				}
				v.has(t, "a", "b", "c")
				if len(v.aside) != 1 || v.aside[0].Subject != s2 || v.aside[0].Offset != 3 || !strings.Contains(v.aside[0].Reason, "cannot be") {
					t.Errorf("quarantined: got %v, want s2 at @3", v.aside)
				}
				mustPut(t, l, s2, "e")
				mustPut(t, l, s1, "f")
				if err := (&projector.Runner{Log: l, View: v}).CatchUp(t.Context(), nil); err != nil {
					t.Fatal(err)
				}
				v.has(t, "a", "b", "c", "f")
				v.refuse, v.stored = nil, []string{"a", "c", "f"} // Forget of this view removes its records of s2
				mended, err := (&projector.Runner{Log: l, View: v}).Retry(t.Context())
				if err != nil || len(mended) != 1 || len(v.aside) > 0 {
					t.Errorf("retry: got %v, %v, left %v, want 1 and none left", mended, err, v.aside)
				}
				v.has(t, "a", "c", "f", "b", "bad", "d", "e")
			})
		})
	}
	t.Run("net Q2 a retry folds each record once", func(t *testing.T) {
		onShelf(t, func(t *testing.T, l *log.Log, _ *memlog.Backend) {
			mustPut(t, l, s1, "a")
			v := &shelf{refuse: func(projector.Fact) error { return &projector.FoldError{Err: errors.New("cannot be")} }}
			r := &projector.Runner{Log: l, View: v}
			if err := r.CatchUp(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			mustPut(t, l, s1, "b") // the view has not reached it
			v.refuse = nil
			if _, err := r.Retry(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := r.CatchUp(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			v.has(t, "a", "b")
		})
	})
}

// The failure of a view is not the fault of a subject: the runner retries from its cursor and skips nothing.
func TestRunnerTriesAgain(t *testing.T) {
	onShelf(t, func(t *testing.T, l *log.Log, _ *memlog.Backend) {
		mustPut(t, l, s1, "a")
		v := &shelf{broken: errors.New("no space")}
		var said warnings
		r := &projector.Runner{Log: l, View: v, Logger: said.logger()}
		stop := running(t, r)
		time.Sleep(time.Minute)
		v.has(t)
		v.mu.Lock()
		v.broken = nil
		v.mu.Unlock()
		time.Sleep(10 * time.Second)
		v.has(t, "a")
		stop()
		if !strings.Contains(strings.Join(said.all(), "\n"), "no space") {
			t.Errorf("log output: got %s, want no space", strings.Join(said.all(), "\n"))
		}
	})
}

// telling is a shelf that stores that it was made without lost records.
type telling struct {
	*shelf
	told   int
	broken error
}

func (s *telling) Lacks(context.Context) error {
	if s.broken == nil {
		s.told++
	}
	return s.broken
}

func TestRunnerTellsOfLosses(t *testing.T) {
	t.Run("net D1 a view says that it lacks a record before it shows what came behind", func(t *testing.T) {
		onShelf(t, func(t *testing.T, l *log.Log, mem *memlog.Backend) {
			mustPut(t, l, s1, "a", "b", "c")
			mem.Damage(2)
			v := &telling{shelf: &shelf{}, broken: errors.New("no space")}
			r := &projector.Runner{Log: l, View: v}
			if err := r.CatchUp(t.Context(), nil); !errors.Is(err, v.broken) || v.cursor.Offset != 0 {
				t.Errorf("the view is at %v, %v, want the beginning and its error", v.cursor.Offset, err)
			}
			v.broken = nil
			if err := r.CatchUp(t.Context(), nil); err != nil || v.told != 1 {
				t.Errorf("the view was told %d times, %v, want once", v.told, err)
			}
			v.has(t, "a", "c")
		})
	})
}

// A view of another log is emptied with its quarantine, with one message.
func TestRunnerKnowsItsLog(t *testing.T) {
	for name, cursor := range map[string]projector.Cursor{
		"another event": {Offset: 1, EventID: "z"},
		"beyond":        {Offset: 7, EventID: "a"},
		"damaged":       {Offset: 2, EventID: "b"},
	} {
		t.Run(name, func(t *testing.T) {
			onShelf(t, func(t *testing.T, l *log.Log, mem *memlog.Backend) {
				mustPut(t, l, s1, "a", "b", "c")
				mem.Damage(2)
				var said warnings
				v := &shelf{cursor: cursor, stored: []string{"z"}, aside: []projector.Quarantine{{Subject: s1, Offset: 1}}}
				r := &projector.Runner{Log: l, View: v, Logger: said.logger()}
				for range 2 {
					if err := r.CatchUp(t.Context(), nil); err != nil {
						t.Fatal(err)
					}
				}
				v.has(t, "a", "c")
				if v.resets != 1 || strings.Count(strings.Join(said.all(), "\n"), "view is rebuilt") != 1 {
					t.Errorf("the view was reset %d times with log output %s, want once with one warning", v.resets, strings.Join(said.all(), "\n"))
				}
			})
		})
	}
}

// A runner without time to catch up stores in the view that there are more records.
func TestRunnerLeaves(t *testing.T) {
	onShelf(t, func(t *testing.T, l *log.Log, _ *memlog.Backend) {
		mustPut(t, l, s1, "a", "b", "c", "d", "e", "f")
		v := &shelf{refuse: func(projector.Fact) error { time.Sleep(300 * time.Millisecond); return nil }}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		(&projector.Runner{Log: l, View: v, Batch: 1}).Run(ctx)
		if at := v.cursor.Offset; at < 2 || at > 4 || v.cursor.Head != 6 {
			t.Errorf("view is at %v of %v after a second, want 2 to 4 of 6", at, v.cursor.Head)
		}
		v.refuse = nil
		(&projector.Runner{Log: l, View: v}).Run(ctx)
		v.has(t, "a", "b", "c", "d", "e", "f")
	})
}

func TestRunnerWaitEnds(t *testing.T) {
	onShelf(t, func(t *testing.T, l *log.Log, _ *memlog.Backend) {
		r := &projector.Runner{Log: l, View: &shelf{}, Logger: slog.New(slog.DiscardHandler)}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := r.Wait(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("wait for a missing record: got %v, want DeadlineExceeded", err)
		}
	})
}

// Readers of a view on a full disk get the error, and wait again as soon as there is room.
func TestRunnerHasRoomAgain(t *testing.T) {
	onShelf(t, func(t *testing.T, l *log.Log, _ *memlog.Backend) {
		var full atomic.Bool
		noSpace := errors.New("no space")
		v := &shelf{}
		r := &projector.Runner{Log: l, View: v, Room: func() error {
			if full.Load() {
				return noSpace
			}
			return nil
		}}
		defer running(t, r)()
		for i := range 2 {
			at := events.Offset(2*i + 1)
			full.Store(true)
			mustPut(t, l, s1, fmt.Sprint(at))
			time.Sleep(time.Minute)
			if err := r.Wait(t.Context(), at); !errors.Is(err, noSpace) {
				t.Errorf("no room: got %v", err)
			}
			full.Store(false)
			time.Sleep(time.Minute)
			waited := make(chan error, 1)
			go func() { waited <- r.Wait(t.Context(), at+1) }()
			synctest.Wait()
			mustPut(t, l, s1, fmt.Sprint(at+1))
			if err := <-waited; err != nil {
				t.Errorf("room again: got %v", err)
			}
		}
		v.has(t, "@1", "@2", "@3", "@4")
	})
}
