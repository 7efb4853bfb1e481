package projector_test

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
	"github.com/tallylog/tally/projector"
)

// quiet is the time without a record after which a view continues.
const quiet = 50 * time.Millisecond

func TestPatientViewRestsUntilTheLogIsQuiet(t *testing.T) {
	onShelf(t, func(t *testing.T, l *log.Log, _ *memlog.Backend) {
		v := &shelf{}
		stop := running(t, &projector.Runner{Log: l, View: v, Pace: projector.Patient})
		defer stop()
		time.Sleep(time.Second)
		var want []string
		for i := range 10 { // 0.3 s, never quiet
			id := string(rune('a' + i))
			want = append(want, id)
			mustPut(t, l, s1, id)
			time.Sleep(30 * time.Millisecond)
		}
		v.has(t)
		time.Sleep(3 * quiet)
		v.has(t, want...)
		if v.commits != 1 {
			t.Errorf("got %d commits, want 1 for the whole burst", v.commits)
		}
		mustPut(t, l, s2, "z")
		time.Sleep(3 * quiet)
		v.has(t, append(want, "z")...)
	})
}

func TestPatientViewRestsNoLongerThanItMay(t *testing.T) {
	onShelf(t, func(t *testing.T, l *log.Log, _ *memlog.Backend) {
		const pace = 400 * time.Millisecond
		v := &shelf{}
		stop := running(t, &projector.Runner{Log: l, View: v, Pace: projector.Pace(pace)})
		defer stop()
		time.Sleep(time.Second)
		begun := time.Now()
		for n := 0; v.count() == 0 && n < 1000; n++ {
			mustPut(t, l, s1, fmt.Sprint(n))
			time.Sleep(10 * time.Millisecond)
		}
		if took := time.Since(begun); took < pace || took > pace+2*quiet {
			t.Errorf("the view showed the first record after %v, want about %v", took, pace)
		}
	})
}

// A view starts even if its log is never quiet before. A program that opens a log and appends has priority.
func TestPatientViewLetsOthersBegin(t *testing.T) {
	onShelf(t, func(t *testing.T, l *log.Log, _ *memlog.Backend) {
		mustPut(t, l, s1, "a")
		v := &shelf{}
		stop := running(t, &projector.Runner{Log: l, View: v, Pace: projector.Patient})
		defer stop()
		v.has(t)
		time.Sleep(2 * quiet)
		v.has(t, "a")
	})
}

func TestWaiterEndsTheRest(t *testing.T) {
	onShelf(t, func(t *testing.T, l *log.Log, _ *memlog.Backend) {
		v := &shelf{}
		r := &projector.Runner{Log: l, View: v, Pace: projector.Pace(24 * time.Hour)}
		stop := running(t, r)
		defer stop()
		for _, id := range []string{"a", "b"} {
			mustPut(t, l, s1, id)
			synctest.Wait()
			begun := time.Now()
			if err := r.Wait(t.Context(), lastOffset(t, l)); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(begun); took > 50*time.Millisecond {
				t.Errorf("Wait took %v, want at most 50ms", took)
			}
		}
		v.has(t, "a", "b")
		mustPut(t, l, s1, "c")
		synctest.Wait()
		v.has(t, "a", "b") // no reader waits any more
	})
	t.Run("net W4 a reader ends the rest, also if another one has given up", func(t *testing.T) {
		onShelf(t, func(t *testing.T, l *log.Log, _ *memlog.Backend) {
			r := &projector.Runner{Log: l, View: &shelf{}, Pace: projector.Pace(24 * time.Hour)}
			defer running(t, r)()
			time.Sleep(time.Second)
			var waited error
			var reader sync.WaitGroup
			reader.Go(func() { waited = r.Wait(t.Context(), 1) })
			synctest.Wait()
			over, giveUp := context.WithCancel(t.Context())
			giveUp()
			if err := r.Wait(over, 1); err == nil {
				t.Error("Wait returned without a record")
			}
			begun := time.Now()
			mustPut(t, l, s1, "a")
			if reader.Wait(); waited != nil || time.Since(begun) >= quiet {
				t.Errorf("Wait took %v, %v, want less than %v", time.Since(begun), waited, quiet)
			}
		})
	})
}

func TestPatientViewCatchesUpWhenItStops(t *testing.T) {
	onShelf(t, func(t *testing.T, l *log.Log, _ *memlog.Backend) {
		v := &shelf{}
		stop := running(t, &projector.Runner{Log: l, View: v, Pace: projector.Patient})
		mustPut(t, l, s1, "a", "b")
		stop()
		v.has(t, "a", "b")
	})
}

func TestPatientViewPassesDamage(t *testing.T) {
	onShelf(t, func(t *testing.T, l *log.Log, mem *memlog.Backend) {
		v, b := &shelf{}, &bulky{Log: l}
		stop := running(t, &projector.Runner{Log: b, View: v, Pace: projector.Patient})
		defer stop()
		mustPut(t, l, s1, "a", "b")
		mem.Damage(2)
		time.Sleep(3 * quiet)
		v.has(t, "a")
		follows := b.follows.Load()
		time.Sleep(time.Minute)
		if more := b.follows.Load() - follows; more > 1 {
			t.Errorf("the idle runner started %d reads, want at most 1", more)
		}
		mustPut(t, l, s1, "c")
		time.Sleep(3 * quiet)
		v.has(t, "a", "c")
	})
}

func lastOffset(t *testing.T, l *log.Log) events.Offset {
	t.Helper()
	head, err := l.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return head
}

// bulky is a log with a simulated large series of appends.
type bulky struct {
	*log.Log
	now     atomic.Bool
	follows atomic.Int32 // number of calls
}

func (b *bulky) Follow(ctx context.Context, r events.Range) iter.Seq2[events.Record, error] {
	b.follows.Add(1)
	return b.Log.Follow(ctx, r)
}

func (b *bulky) Bulk() bool { return b.now.Load() }

// While a large series is appended, every view pauses, for at most a tenth of a second.
func TestViewStandsAsideForALargeSeries(t *testing.T) {
	onShelf(t, func(t *testing.T, l *log.Log, _ *memlog.Backend) {
		v, b := &shelf{}, &bulky{Log: l}
		stop := running(t, &projector.Runner{Log: b, View: v})
		defer stop()
		mustPut(t, l, s1, "a")
		time.Sleep(5 * time.Millisecond)
		v.has(t, "a")
		b.now.Store(true)
		for n := range 3 {
			begun := time.Now()
			for time.Since(begun) < 90*time.Millisecond {
				mustPut(t, l, s1, time.Now().String())
				time.Sleep(10 * time.Millisecond)
			}
			if have := v.count(); have != 1+10*n {
				t.Errorf("the view shows %d records during a series, want %d", have, 1+10*n)
			}
			mustPut(t, l, s1, time.Now().String())
			time.Sleep(15 * time.Millisecond)
			if have := v.count(); have != 1+10*(n+1) {
				t.Errorf("the view shows %d records after a tenth of a second, want %d", have, 1+10*(n+1))
			}
		}
		b.now.Store(false)
		mustPut(t, l, s1, "z")
		time.Sleep(5 * time.Millisecond)
		if have := v.count(); have != 32 {
			t.Errorf("the view shows %d records after the series, want 32", have)
		}
	})
}

func TestNobodyWaitsForALargeSeries(t *testing.T) {
	onShelf(t, func(t *testing.T, l *log.Log, _ *memlog.Backend) {
		v, b := &shelf{}, &bulky{Log: l}
		r := &projector.Runner{Log: b, View: v}
		stop := running(t, r)
		defer stop()
		b.now.Store(true)
		for _, id := range []string{"a", "b"} {
			mustPut(t, l, s1, id)
			begun := time.Now()
			if err := r.Wait(t.Context(), lastOffset(t, l)); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(begun); took > 5*time.Millisecond {
				t.Errorf("took %v, want at most 5ms", took)
			}
		}
	})
}

// While many records arrive, a view reads them in groups of a fiftieth of a second. At a thousand a second it reads
// almost every record at once.
func TestViewTakesManyAtATime(t *testing.T) {
	for _, x := range []struct{ perSecond, low, high int }{{1000, 300, 1000}, {5000, 40, 150}} {
		onShelf(t, func(t *testing.T, l *log.Log, _ *memlog.Backend) {
			v := &shelf{}
			stop := running(t, &projector.Runner{Log: l, View: v})
			defer stop()
			for n := range x.perSecond {
				mustPut(t, l, s1, fmt.Sprint(n))
				time.Sleep(time.Second / time.Duration(x.perSecond))
			}
			if n := v.committed(); n < x.low || n > x.high {
				t.Errorf("got %d commits for %d records in a second, want %d to %d", n, x.perSecond, x.low, x.high)
			}
			time.Sleep(2 * quiet)
			if have := v.count(); have != x.perSecond {
				t.Errorf("the view shows %d records, want %d", have, x.perSecond)
			}
			mustPut(t, l, s1, "last") // it is quiet again
			time.Sleep(200 * time.Millisecond)
			mustPut(t, l, s1, "one more")
			time.Sleep(5 * time.Millisecond)
			if have := v.count(); have != x.perSecond+2 {
				t.Errorf("the view shows %d records in a quiet log, want %d", have, x.perSecond+2)
			}
		})
	}
}
