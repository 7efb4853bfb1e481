package projector_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
	"github.com/tallylog/tally/projector"
)

// slow is a shelf whose steps take time, and end with their contexts.
type slow struct {
	*shelf
	begin, apply, commit time.Duration
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s slow) Begin(ctx context.Context) (projector.Cursor, []projector.Quarantine, error) {
	if err := wait(ctx, s.begin); err != nil {
		return projector.Cursor{}, nil, err
	}
	return s.shelf.Begin(ctx)
}

func (s slow) Apply(ctx context.Context, f projector.Fact) error {
	if err := wait(ctx, s.apply); err != nil {
		return err
	}
	return s.shelf.Apply(ctx, f)
}

func (s slow) Commit(ctx context.Context, c projector.Cursor) error {
	if err := wait(ctx, s.commit); err != nil {
		return err
	}
	return s.shelf.Commit(ctx, c)
}

// A view that a runner leaves says whether it is behind, and how far the log goes, however slow it is and whenever the
// runner stops.
func TestViewThatIsLeft(t *testing.T) {
	t.Run("net P2 a view that is left behind says how far the log goes", func(t *testing.T) {
		for seed := range testkit.Times(1200) {
			synctest.Test(t, func(t *testing.T) { leaveOne(t, rand.New(rand.NewPCG(uint64(seed), 1))) })
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		}
	})
}

func leaveOne(t *testing.T, random *rand.Rand) {
	some := func(list ...time.Duration) time.Duration { return list[random.IntN(len(list))] }
	l, err := log.OpenOn(t.Context(), memlog.New(memlog.Config{}), log.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	v := slow{new(shelf), some(0, 10*time.Millisecond, 2*time.Second), some(0, time.Millisecond, 400*time.Millisecond), some(0, time.Millisecond, 3*time.Second)}
	r := &projector.Runner{Log: l, View: v, Batch: random.IntN(4), Leave: some(0, 100*time.Millisecond, time.Second)}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	n := 0
	for range 1 + random.IntN(4) {
		for range random.IntN(5) {
			n++
			mustPut(t, l, s1, fmt.Sprint(n))
		}
		time.Sleep(some(0, time.Millisecond, 100*time.Millisecond, 5*time.Second))
	}
	stop()
	running.Wait()
	c := v.shelf.cursor
	if want := n; int(c.Offset) < want && int(c.Head) != want {
		t.Errorf("the view is left at %v of a log that ends at %d, and says that it ends at %v (%v to begin, %v for a record, %v to commit, %v to leave)",
			c.Offset, want, c.Head, v.begin, v.apply, v.commit, r.Leave)
	}
	if got := len(v.shelf.stored); got != int(c.Offset) {
		t.Errorf("the view has %d records, and says that it is at %v", got, c.Offset)
	}
}
