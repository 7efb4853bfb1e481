package tally_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/nats/natsfile"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
	"github.com/tallylog/tally/projector"
)

// seenBy returns the ids of the changes that a watch yields, up to a change of a document whose id ends in "end".
func seenBy(ctx context.Context, d *tally.Documents, q projector.DocumentQuery, after events.Offset) (lines []string, err error) {
	for c, err := range d.Watch(ctx, q, after) {
		if err != nil {
			return lines, err
		}
		line := c.Subject.ID
		if c.Deleted {
			line += "!" + c.Reason
		}
		if lines = append(lines, line); strings.HasSuffix(c.Subject.ID, "end") {
			return lines, nil
		}
	}
	return lines, ctx.Err()
}

// A watch yields each change once and in order, first stored ones, then new ones.
func watches(t *testing.T, st *tally.Store) {
	d, ctx := st.Documents(), t.Context()
	begin := mustCreate(t, d, "w", "begin", text("x")).Offset
	write := func(id, owner string) events.Offset {
		w := text(id)
		w.Owner = owner
		return mustSave(t, d, "w", id, w).Offset
	}
	write("a/1", "me")
	mustTurns(t, st.Session("w"), "a turn is not a change of a document")
	mustCreate(t, d, "other", "a/1", text("x"))
	middle := write("a/2", "you")
	write("a/1", "you")
	watchers := map[string]struct {
		q     projector.DocumentQuery
		after events.Offset
		want  string
	}{
		"all of a kind":    {projector.DocumentQuery{Kind: "w"}, begin, "a/1 a/2 a/1 b/1 a/2!done b/1 end"},
		"by prefix":        {projector.DocumentQuery{Kind: "w", Prefix: "b/"}, begin, "b/1 b/1 b/end"},
		"from the middle":  {projector.DocumentQuery{Kind: "w"}, middle, "a/1 b/1 a/2!done b/1 end"},
		"by owner":         {projector.DocumentQuery{Kind: "w", Owner: "me"}, begin, "a/1 a/1 b/1 b/1 end"}, // the second a/1 and the second b/1 have another owner
		"every kind":       {projector.DocumentQuery{Prefix: "a/"}, begin, "a/1 a/1 a/2 a/1 a/2!done a/end"},
		"with what it was": {projector.DocumentQuery{Kind: "w", Owner: "you"}, begin, "a/2 a/1 a/2!done b/1 end"},
	}
	var wg, ready sync.WaitGroup
	for name, c := range watchers {
		ready.Add(1)
		wg.Go(func() {
			ready.Done()
			lines, err := seenBy(ctx, d, c.q, c.after)
			if have := strings.Join(lines, " "); have != c.want || err != nil {
				t.Errorf("%s: got %s, %v, want %s", name, have, err, c.want)
			}
		})
	}
	ready.Wait()
	time.Sleep(20 * time.Millisecond) // now some of the watches are live
	write("b/1", "me")
	if _, err := d.Delete(ctx, "w", "a/2", 0, "done"); err != nil {
		t.Fatal(err)
	}
	write("b/1", "you")
	for _, id := range []string{"b/end", "a/end"} { // only watches with a prefix or for every kind yield these; the others end with the next
		mustSave(t, d, "x"+id[:1], id, text("x"))
	}
	w := text("end")
	w.Owner = "me"
	mustSave(t, d, "w", "end", w)
	w.Owner = "you"
	mustSave(t, d, "w", "end", w)
	mustSave(t, d, "w", "b/end", text("x"))
	wg.Wait()
}

// While ten thousand changes are written, watchers of all speeds get each change once and in order. A watcher that does
// not read delays no other watcher or writer, and continues from the offset of its error.
func TestWatchers(t *testing.T) {
	st := storetest.Memory(t, tally.Config{})
	ctx, stop := context.WithTimeout(t.Context(), testkit.Patience(time.Minute))
	defer stop()
	d := st.Documents()
	const n = 10_000
	// see watches from the first change to the last, and continues after a LaggedError.
	see := func(name string, each func(seen int)) (lagged int) {
		for seen := 0; seen < n; {
			if ctx.Err() != nil {
				t.Errorf("%s got %d changes, and waits for the next one", name, seen)
				return lagged
			}
			for c, err := range d.Watch(ctx, projector.DocumentQuery{}, events.Offset(seen)) {
				if lag, ok := errors.AsType[*tally.LaggedError](err); ok && lag.After == events.Offset(seen) {
					lagged++
					break
				}
				if seen++; err != nil || c.Offset != events.Offset(seen) {
					t.Errorf("%s got %v as change %d: %v", name, c.Offset, seen, err)
					return lagged
				}
				if each(seen); seen == n {
					break
				}
			}
		}
		return lagged
	}
	var others, sleeper sync.WaitGroup
	for i := range 3 {
		others.Go(func() { see(fmt.Sprint("watcher ", i), func(int) {}) })
	}
	begun, asleep, awake := make(chan struct{}), make(chan struct{}), make(chan struct{})
	sleeper.Go(func() {
		lagged := see("the sleeper", func(seen int) {
			switch seen {
			case 1:
				close(begun)
			case 2: // it is live
				close(asleep)
				<-awake
			}
		})
		if lagged != 1 {
			t.Errorf("the sleeper got %d LaggedErrors, want 1", lagged)
		}
	})
	for i, next := range []chan struct{}{begun, asleep} {
		mustSave(t, d, "doc", "x", text("x"))
		select {
		case <-next:
		case <-ctx.Done():
			t.Fatalf("change %d did not come to the sleeper", i+1)
		}
	}
	for range n - 2 {
		mustSave(t, d, "doc", "x", text("x"))
	}
	others.Wait() // now all changes were offered to the sleeper too
	close(awake)
	sleeper.Wait()
}

// Watches that begin at any time, at any offset, yield each change behind it once and in order.
func TestWatchesBegunAtAnyTime(t *testing.T) {
	for seed := range testkit.Times(80) {
		random := rand.New(rand.NewPCG(uint64(seed), 1))
		synctest.Test(t, func(t *testing.T) { playWatches(t, random) })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func playWatches(t *testing.T, random *rand.Rand) {
	st := on(t, sharedMem{memlog.New(memlog.Config{})}, tally.Config{})
	ctx, stop := context.WithTimeout(t.Context(), time.Hour)
	defer stop()
	d := st.Documents()
	var written []events.Offset
	write := func(id string) { written = append(written, mustSave(t, d, "doc", id, text("x")).Offset) }
	var watching sync.WaitGroup
	seen, after := make([][]events.Offset, 20), make([]int, 20) // by watch; after is a number of changes
	for i := range seen {
		for range random.IntN(4) {
			write("x")
		}
		at := events.Offset(0)
		if after[i] = random.IntN(len(written) + 1); after[i] > 0 {
			at = written[after[i]-1]
		}
		watching.Go(func() {
			for c, err := range d.Watch(ctx, projector.DocumentQuery{Kind: "doc"}, at) {
				if err != nil {
					t.Error(err)
					return
				}
				if seen[i] = append(seen[i], c.Offset); c.Subject.ID == "last" {
					return
				}
			}
		})
		if random.IntN(2) == 0 {
			synctest.Wait()
		}
	}
	write("last")
	watching.Wait()
	for i, have := range seen {
		if want := written[after[i]:]; !slices.Equal(have, want) {
			t.Errorf("watch %d, behind change %d, yielded %v, want %v", i, after[i], have, want)
		}
	}
}

// A watch ends with its store, its context or its loop. storetest.Memory checks that no goroutine is left.
func TestWatchEnds(t *testing.T) {
	t.Run("with the store", func(t *testing.T) {
		st, err := embedded.Open(t.Context(), embedded.Options{Store: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		d := st.Documents()
		mustCreate(t, d, "doc", "x", text("x"))
		var last error
		var closing sync.WaitGroup
		for _, err := range d.Watch(t.Context(), projector.DocumentQuery{}, 0) {
			if last = err; err != nil {
				continue
			}
			closing.Go(func() {
				if err := st.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		closing.Wait() // before the test's directory is removed
		if !errors.Is(last, log.ErrUnavailable) {
			t.Errorf("last error of a closed store: got %v, want ErrUnavailable", last)
		}
	})
	t.Run("with its context", func(t *testing.T) {
		st := storetest.Memory(t, tally.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Millisecond, cancel)
		for _, err := range st.Documents().Watch(ctx, projector.DocumentQuery{}, 0) {
			t.Error(err)
		}
	})
	t.Run("by the caller", func(t *testing.T) {
		st := storetest.Memory(t, tally.Config{})
		mustCreate(t, st.Documents(), "doc", "x", text("x"))
		for range st.Documents().Watch(t.Context(), projector.DocumentQuery{}, 0) {
			break
		}
	})
	t.Run("refused", func(t *testing.T) {
		st := storetest.Memory(t, tally.Config{})
		for _, q := range []projector.DocumentQuery{{Kind: "a.b"}, {Namespace: "a.b"}, {Link: "x"}} {
			n := 0
			for _, err := range st.Documents().Watch(t.Context(), q, 0) {
				if n++; !invalid(err) {
					t.Errorf("%+v: got %v, want an *InvalidError", q, err)
				}
			}
			if n != 1 {
				t.Errorf("%+v: got %d errors, want 1", q, n)
			}
		}
	})
}

// A watcher that continues from its last change sees each change once and in order, across segments and the death of
// the owner.
func TestWatchGoesOn(t *testing.T) {
	dir := t.TempDir()
	config := "[store]\nbackend = \"local\"\ndir = \"store\"\nsegment = \"64KiB\"\n"
	if err := os.WriteFile(filepath.Join(dir, "tally.toml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	open := func() *tally.Store {
		st, err := embedded.Open(t.Context(), embedded.Options{ConfigDir: dir})
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	const rounds, each = 2, 20
	content := strings.Repeat("0123456789abcdef", 1<<10) // 20 of them fill several segments
	var want, have []events.Offset
	owner := open()
	for round := range rounds {
		attached := open()
		if round == 0 {
			want = append(want, mustSave(t, owner.Documents(), "doc", "x", text("first")).Offset)
		}
		var watch sync.WaitGroup
		watch.Go(func() {
			after := events.Offset(0)
			if len(have) > 0 {
				after = have[len(have)-1]
			}
			for c, err := range attached.Documents().Watch(t.Context(), projector.DocumentQuery{Kind: "doc"}, after) {
				if err != nil {
					if !errors.Is(err, log.ErrUnavailable) {
						t.Error(err)
					}
					return
				}
				have = append(have, c.Offset)
			}
		})
		for range each {
			want = append(want, mustSave(t, owner.Documents(), "doc", "x", text(content)).Offset)
		}
		if err := owner.Close(); err != nil {
			t.Fatal(err)
		}
		watch.Wait()
		if err := attached.Close(); err != nil {
			t.Log(err)
		}
		owner = open()
	}
	seen := events.Offset(0) // 0 if the owner died before any change came
	if len(have) > 0 {
		seen = have[len(have)-1]
	}
	for c, err := range owner.Documents().Watch(t.Context(), projector.DocumentQuery{Kind: "doc"}, max(seen, 1)-1) {
		if err != nil {
			t.Fatal(err)
		}
		if c.Offset > seen {
			have = append(have, c.Offset)
		}
		if c.Offset == want[len(want)-1] {
			break
		}
	}
	owner.Close()
	if segments, err := natsfile.Folders(filepath.Join(dir, "store")); err != nil || len(segments) < 3 {
		t.Errorf("the log has segments %v, %v, want at least 3", segments, err)
	}
	if !slices.Equal(have, want) {
		t.Errorf("got %d changes, want %d, each once and in order", len(have), len(want))
	}
}

// BenchmarkWatch is the time from the acknowledgement of a durable write to the change.
func BenchmarkWatch(b *testing.B) {
	st := storetest.Open(b, "local")
	d := st.Documents()
	next, stop := iter.Pull2(d.Watch(b.Context(), projector.DocumentQuery{}, 0))
	defer stop()
	var took []time.Duration
	for b.Loop() {
		rev, err := d.Save(b.Context(), "doc", "x", text("x"))
		acked := time.Now()
		if err != nil {
			b.Fatal(err)
		}
		if c, err, _ := next(); err != nil || c.Offset != rev.Offset {
			b.Fatal(c.Offset, rev.Offset, err)
		}
		took = append(took, time.Since(acked))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-us")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-us")
}
