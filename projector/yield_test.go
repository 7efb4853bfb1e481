package projector_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/logtest"
	"github.com/tallylog/tally/projector"
)

var patient = projector.Yield{Quiet: 50 * time.Millisecond, Age: time.Second, Records: 1000}

func TestYieldingViewSleepsUntilTheLogIsQuiet(t *testing.T) {
	onShelf(t, func(t *testing.T, l *log.Log, _ *logtest.Mem) {
		v := &shelf{}
		stop := running(t, &projector.Runner{Log: l, View: v, Yield: patient})
		defer stop()
		var want []string
		for i := range 10 { // 0.3 s, never quiet
			id := string(rune('a' + i))
			want = append(want, id)
			put(t, l, s1, id)
			time.Sleep(30 * time.Millisecond)
		}
		v.has(t)
		time.Sleep(3 * patient.Quiet)
		v.has(t, want...)
		if v.commits != 1 {
			t.Errorf("%d commits, want one for the whole burst", v.commits)
		}
		put(t, l, s2, "z")
		time.Sleep(3 * patient.Quiet)
		v.has(t, append(want, "z")...)
	})
}

func TestYieldingViewIsNeverFurtherBehindThanItMay(t *testing.T) {
	for _, c := range []struct {
		name  string
		yield projector.Yield
		after time.Duration
	}{
		{"age", projector.Yield{Quiet: 50 * time.Millisecond, Age: 400 * time.Millisecond}, 400 * time.Millisecond},
		{"records", projector.Yield{Quiet: 50 * time.Millisecond, Records: 20}, 200 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			onShelf(t, func(t *testing.T, l *log.Log, _ *logtest.Mem) {
				v := &shelf{}
				stop := running(t, &projector.Runner{Log: l, View: v, Yield: c.yield})
				defer stop()
				begun := time.Now()
				for v.count() == 0 && time.Since(begun) < 10*time.Second {
					put(t, l, s1, begun.Add(time.Since(begun)).Format(time.RFC3339Nano))
					time.Sleep(10 * time.Millisecond)
				}
				// One Quiet to see the bound, and one silence to commit behind it.
				if took := time.Since(begun); took < c.after || took > c.after+3*c.yield.Quiet {
					t.Errorf("the view showed the first record after %v, want about %v", took, c.after)
				}
			})
		})
	}
}

func TestWaiterEndsTheYielding(t *testing.T) {
	onShelf(t, func(t *testing.T, l *log.Log, _ *logtest.Mem) {
		v := &shelf{}
		r := &projector.Runner{Log: l, View: v, Yield: projector.Yield{Quiet: time.Hour, Age: 24 * time.Hour}}
		stop := running(t, r)
		defer stop()
		for _, id := range []string{"a", "b"} {
			put(t, l, s1, id)
			synctest.Wait()
			begun := time.Now()
			if err := r.Wait(t.Context(), lastOffset(t, l)); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(begun); took > 50*time.Millisecond {
				t.Errorf("waited for %v", took)
			}
		}
		v.has(t, "a", "b")
		put(t, l, s1, "c")
		time.Sleep(time.Minute)
		v.has(t, "a", "b") // nobody waits any more
	})
}

func TestYieldingViewCatchesUpWhenItStops(t *testing.T) {
	onShelf(t, func(t *testing.T, l *log.Log, _ *logtest.Mem) {
		v := &shelf{}
		stop := running(t, &projector.Runner{Log: l, View: v, Yield: patient})
		put(t, l, s1, "a", "b")
		stop()
		v.has(t, "a", "b")
	})
}

func TestYieldingViewPassesDamage(t *testing.T) {
	onShelf(t, func(t *testing.T, l *log.Log, mem *logtest.Mem) {
		v := &shelf{}
		stop := running(t, &projector.Runner{Log: l, View: v, Yield: patient})
		defer stop()
		put(t, l, s1, "a", "b")
		mem.Damage(2)
		time.Sleep(3 * patient.Quiet)
		v.has(t, "a")
		time.Sleep(time.Hour) // it does not wake up again and again
		put(t, l, s1, "c")
		time.Sleep(3 * patient.Quiet)
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
