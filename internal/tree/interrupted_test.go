package tree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/storagetest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// attentive is a storage whose reading calls fail if their context is done, as calls over a network do.
type attentive struct{ storagetest.Whole }

func (s attentive) Read(ctx context.Context, p string) (io.ReadCloser, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return s.Whole.Read(ctx, p)
}

func (s attentive) Stat(ctx context.Context, p string) (layouts.FileInfo, error) {
	if ctx.Err() != nil {
		return layouts.FileInfo{}, ctx.Err()
	}
	return s.Whole.Stat(ctx, p)
}

func (s attentive) List(ctx context.Context, dir string) ([]layouts.FileInfo, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return s.Whole.List(ctx, dir)
}

// watchedTarget is a store that calls before ahead of each read.
type watchedTarget struct {
	*tally.Store
	before func() error
}

func (s watchedTarget) Loader() *projector.Loader {
	l := s.Store.Loader()
	return &projector.Loader{Source: watchedSource{l.Source, s.before}, Logger: l.Logger, MaxValue: l.MaxValue}
}

type watchedSource struct {
	projector.Source
	before func() error
}

func (s watchedSource) Read(ctx context.Context, r events.Range) iter.Seq2[events.Record, error] {
	if err := errors.Join(s.before(), ctx.Err()); err != nil {
		return func(yield func(events.Record, error) bool) { yield(events.Record{}, err) }
	}
	return s.Source.Read(ctx, r)
}

func (s watchedSource) Record(ctx context.Context, at events.Offset) (events.Record, error) {
	if err := errors.Join(s.before(), ctx.Err()); err != nil {
		return events.Record{}, err
	}
	return s.Source.Record(ctx, at)
}

// An interruption is what happens at one call of a tree.
type interruption int

const (
	cancelled interruption = iota // the context of the calls ends
	unread                        // the store cannot be reached for one read
	interruptions
)

func (i interruption) String() string {
	return [...]string{"its context ends", "the store cannot be read"}[i]
}

// interrupted starts a tree over files that an earlier one left when it was killed, with its manifest or without. At the
// n-th call something interrupts the tree. Then the same tree goes on, or another one. It returns the number of calls.
func interrupted(t *testing.T, lost, again bool, n int, how interruption) (calls int) {
	w := newWorld(t, plainLand{}, nil, false)
	w.wild, w.touched, w.struck = true, true, make(map[string]int)
	w.says("b", "b\n")
	w.start()
	for i := range 3 { // each revision displaces a file that stays for a while
		for _, id := range []string{"a", "d/a", "x.jsonl"} {
			w.says(id, fmt.Sprint(id, " ", i, "\n"))
		}
		if i == 2 && !lost {
			w.kill = "after exchange"
		}
		w.project()
	}
	const users = "of a user\n"
	must(t, w.user.Put(layouts.TemporaryName("d/a"), users)) // a text that the tree displaced
	w.changes++
	w.safe[users] = "it was displaced"
	w.tree = nil
	w.says("a", "a last\n")
	w.forgets("b")
	if lost {
		w.manifest = &memoryManifest{}
	} else {
		must(t, w.user.Put(layouts.TemporaryName("d/a"), "d/a 2")) // the beginning of a new file
	}

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	armed := true
	reach := func(reads bool) error {
		if !armed || how == unread && !reads {
			return nil
		}
		if calls++; calls-1 != n {
			return nil
		}
		if how == cancelled {
			cancel()
			return nil
		}
		return fmt.Errorf("%w: for a moment", log.ErrUnavailable)
	}
	w.storage = attentive{w.storage}
	w.target = watchedTarget{w.st, func() error { return reach(true) }}
	w.faulty, w.plan = true, func(storagetest.Call) storagetest.Fault { _ = reach(false); return storagetest.None }
	w.prepare()
	_, _, _ = w.tree.Begin(ctx)
	w.tree.Tick(ctx, w.now)
	_ = w.runner.CatchUp(ctx, nil)
	for range 4 {
		w.now = w.now.Add(50 * time.Millisecond)
		w.tree.Tick(ctx, w.now)
	}
	armed, w.faulty = false, false
	if !again {
		w.tree = nil
	}
	w.rest()
	w.check()
	var kept []string
	for _, c := range need(w.tree.Conflicts(context.Background())) {
		kept = append(kept, c.Path+": "+w.user.Files()[c.Copy])
	}
	if want := []string{"d/a: " + users}; !slices.Equal(kept, want) {
		t.Errorf("the tree keeps the texts %q, want %q", kept, want)
	}
	if text := w.textOf("b"); text != "" {
		t.Errorf("the deleted document b is %q", text)
	}
	for p := range w.user.Files() {
		if layouts.IsTemporary(p) {
			t.Errorf("the file %s is left", p)
		}
	}
	if t.Failed() {
		t.Fatalf("call %d of a tree, its manifest lost: %v, which goes on: %v: %v\n%s", n, lost, again, how, strings.Join(w.trace, "\n"))
	}
	return calls
}

// A call that is interrupted finds nothing out: a tree never takes its own earlier files for a user's because of it.
func TestInterrupted(t *testing.T) {
	testkit.NotUnderRace(t) // the test has no concurrency
	played := 0
	for how := range interruptions {
		for _, lost := range []bool{true, false} {
			for n := range interrupted(t, lost, false, -1, how) {
				if played++; testkit.Plays(played, 5) {
					interrupted(t, lost, played%2 == 0, n, how)
				}
			}
		}
	}
	t.Log(played, "interruptions")
}

// A tree whose log cannot be reached when it starts imports edits as soon as the log can.
func TestLateStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, plainLand{}, nil, false)
		w.prepare()
		tries, head := 0, w.tree.c.Head
		w.tree.c.Head = func(ctx context.Context) (events.Offset, error) {
			if tries++; tries <= 2 {
				return 0, fmt.Errorf("%w: for a moment", log.ErrUnavailable)
			}
			return head(ctx)
		}
		w.tree.c.Now = time.Now
		must(t, w.user.Put("new", "text\n"))
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		go func() { ended <- w.tree.Run(ctx) }()
		synctest.Wait()
		go func() { w.runner.Run(ctx); ended <- nil }()
		time.Sleep(time.Minute)
		synctest.Wait()
		if text := w.textOf("new"); text != "text\n" {
			t.Errorf("the document is %q, want the text of the file", text)
		}
		stop()
		if err := errors.Join(<-ended, <-ended); err != nil {
			t.Error(err)
		}
	})
}

// Content that cannot be read is no content that a file was shown with: only an interruption leaves the answer open. So a
// damaged record keeps no tree from starting.
func TestUnreadableContent(t *testing.T) {
	damage := errors.New("damaged")
	for _, c := range []struct{ err, want error }{{damage, nil}, {fmt.Errorf("%w: for a moment", log.ErrUnavailable), log.ErrUnavailable}} {
		w := newWorld(t, plainLand{}, nil, false)
		w.says("x.jsonl", "one\n")
		w.start()
		w.project()
		is := wantedFile{File: layouts.File{Path: "x.jsonl", Write: func(io.Writer) error { return c.err }}, sum: "another"}
		old, err := w.tree.isOld(t.Context(), w.tree.files["x.jsonl"].entry, "x.jsonl", "x.jsonl", "sum", is)
		if old || !errors.Is(err, c.want) || c.want == nil && err != nil {
			t.Errorf("content with the error %v: got %v, %v, want the error %v", c.err, old, err, c.want)
		}
	}
}
