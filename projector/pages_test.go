package projector_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/projector"
)

// keptTimeline is a timeline that drops its full blocks from memory now and then, and reads them back through fault.
type keptTimeline struct {
	*projector.Timeline
	stored [][]byte
	reads  int
	fault  func() error // nil: no faults
}

func newKept() *keptTimeline { return &keptTimeline{Timeline: projector.NewTimeline(s1)} }

func (k *keptTimeline) shorten() {
	for n := len(k.stored); n < k.Blocks(); n++ {
		k.stored = append(k.stored, k.Block(n))
	}
	k.Shorten(func(n int) ([]byte, error) {
		k.reads++
		if k.fault != nil {
			if err := k.fault(); err != nil {
				return nil, err
			}
		}
		return k.stored[n], nil
	})
}

// equals compares the stored form with that of another timeline.
func (k *keptTimeline) equals(t *testing.T, want *projector.Timeline) {
	t.Helper()
	k.shorten()
	blocks, rest := inBlocks(want)
	for i, b := range blocks {
		if !bytes.Equal(b, k.stored[i]) {
			t.Fatalf("block %d differs", i)
		}
	}
	if !bytes.Equal(rest, k.Rest()) {
		t.Fatal("the rest differs")
	}
}

// looksBack returns all answers of a timeline about an offset.
func looksBack(h *projector.Timeline, at events.Offset) (string, error) {
	there, err := h.At(at)
	isLive, err2 := h.IsLive(at)
	live, err3 := h.Live(at)
	last, err4 := h.LastLive(at)
	turns, err5 := h.TurnsAt("t1", at)
	return fmt.Sprint(there, isLive, live, last, turns), errors.Join(err, err2, err3, err4, err5)
}

// A timeline that drops stored blocks behaves like one that does not: stale records, rewinds and forks refer to dropped
// blocks.
func TestShortenedTimeline(t *testing.T) {
	testkit.NotUnderRace(t) // the test has no concurrency
	for seed := range uint64(10) {
		want, facts := longTimeline(t, seed, 5000)
		got := newKept()
		for i, f := range facts {
			mustAdd(t, got.Timeline, f)
			if i%97 != 0 {
				continue
			}
			got.shorten()
			if got.Footprint() > 100_000 {
				t.Fatalf("seed %d: footprint of %d bytes after %d records, want at most 100000", seed, got.Footprint(), i)
			}
		}
		got.equals(t, want)
		if got.reads == 0 {
			t.Errorf("seed %d: no older page was read", seed)
		}
		for at := events.Offset(1); at <= want.Last(); at += 37 {
			w, _ := looksBack(want, at)
			if g, err := looksBack(got.Timeline, at); g != w || err != nil {
				t.Fatalf("seed %d: at %v: got %s, want %s: %v", seed, at, g, w, err)
			}
		}
		for _, at := range []events.Offset{1, 700, want.Last() / 2, want.Last()} {
			if w, g := forkOf(t, want, at), forkOf(t, got.Timeline, at); w != g {
				t.Fatalf("seed %d: the fork at %v differs", seed, at)
			}
		}
	}
}

// forkOf returns the initial state of a fork.
func forkOf(t *testing.T, parent *projector.Timeline, at events.Offset) string {
	t.Helper()
	fork := projector.NewTimeline(events.Session("", "fork"))
	if err := fork.Inherit(parent, at); err != nil {
		t.Fatal(err)
	}
	blocks, rest := inBlocks(fork)
	return fmt.Sprint(blocks, rest, fork.Turns())
}

// If a block cannot be read during an addition, a fork or a look-up, the call returns an error and changes nothing. A
// repeated call has the same result as on a timeline without faults.
func TestTimelineWithAFailingReader(t *testing.T) {
	testkit.NotUnderRace(t)
	for seed := range uint64(testkit.Times(10)) {
		want, facts := longTimeline(t, seed, 5000)
		r, got, failed := rand.New(rand.NewPCG(seed, 1)), newKept(), 0
		flaky := errors.New("flaky")
		got.fault = func() error {
			if r.IntN(3) == 0 {
				return flaky
			}
			return nil
		}
		again := func(do func() error) {
			t.Helper()
			for err := do(); err != nil; err = do() {
				if failed++; !errors.Is(err, flaky) || !strings.Contains(err.Error(), "block ") || !strings.Contains(err.Error(), s1.Name()) {
					t.Fatalf("seed %d: got error %v, want it to name block and session", seed, err)
				}
			}
		}
		for i, f := range facts {
			again(func() error {
				length, turns, rest := got.Len(), got.Turns(), got.Rest() // Rest contains the stale records
				_, err := got.Add(f)
				if err != nil && (got.Len() != length || got.Turns() != turns || !bytes.Equal(got.Rest(), rest)) {
					t.Fatalf("seed %d: record %v failed but changed the timeline", seed, f.Offset)
				}
				return err
			})
			if i%97 == 0 {
				got.shorten()
			}
		}
		got.equals(t, want)
		for at := events.Offset(1); at <= want.Last(); at += 97 {
			w, _ := looksBack(want, at)
			again(func() error {
				g, err := looksBack(got.Timeline, at)
				if err == nil && g != w {
					t.Fatalf("seed %d: at %v: got %s, want %s", seed, at, g, w)
				}
				return err
			})
		}
		fork := projector.NewTimeline(events.Session("", "fork"))
		again(func() error {
			err := fork.Inherit(got.Timeline, want.Last()/2)
			if err != nil && fork.Len() > 0 {
				t.Fatalf("seed %d: a failed fork has records", seed)
			}
			return err
		})
		if blocks, rest := inBlocks(fork); fmt.Sprint(blocks, rest, fork.Turns()) != forkOf(t, want, want.Last()/2) {
			t.Fatalf("seed %d: the fork differs", seed)
		}
		if failed < 10 {
			t.Errorf("seed %d: %d reads failed, want at least 10", seed, failed)
		}
	}
}

// A block other than the stored one is an error of the call that reads it.
func TestTimelineWithWrongBlocks(t *testing.T) {
	for name, read := range map[string]func(h [][]byte, n int) []byte{
		"another": func(stored [][]byte, n int) []byte { return stored[n+1] },
		"cut off": func(stored [][]byte, n int) []byte { return stored[n][:100] },
		"empty":   func([][]byte, int) []byte { return nil },
		"longer":  func(stored [][]byte, n int) []byte { return append(bytes.Clone(stored[n]), 0) },
	} {
		h, _ := longTimeline(t, 1, 3000)
		stored, _ := inBlocks(h)
		h.Shorten(func(n int) ([]byte, error) { return read(stored, n), nil })
		if at, err := h.At(300); err == nil || !strings.Contains(err.Error(), "block 0 of the history of "+s1.Name()) {
			t.Errorf("%s: got %v, %v, want an error that names block and session", name, at, err)
		}
	}
}
