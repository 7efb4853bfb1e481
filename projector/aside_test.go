package projector_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/logtest"
	"github.com/tallylog/tally/projector"
)

// bulky is a log to which a large series is appended when the test says so.
type bulky struct {
	*log.Log

	mu          sync.Mutex // guards what follows
	begun, over chan struct{}
}

func newBulky(l *log.Log) *bulky {
	b := &bulky{Log: l, begun: make(chan struct{}), over: make(chan struct{})}
	close(b.over)
	return b
}

func (b *bulky) Bulk() (begun, over <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.begun, b.over
}

func (b *bulky) begin() {
	b.mu.Lock()
	b.over = make(chan struct{})
	close(b.begun)
	b.mu.Unlock()
	synctest.Wait()
}

func (b *bulky) end() {
	b.mu.Lock()
	b.begun = make(chan struct{})
	close(b.over)
	b.mu.Unlock()
	synctest.Wait()
}

func TestViewStandsAsideForALargeSeries(t *testing.T) {
	onShelf(t, func(t *testing.T, l *log.Log, _ *logtest.Mem) {
		v, b := &shelf{}, newBulky(l)
		stop := running(t, &projector.Runner{Log: b, View: v})
		defer stop()
		put(t, l, s1, "a")
		time.Sleep(5 * time.Millisecond)
		v.has(t, "a")
		for _, id := range []string{"b", "c"} {
			b.begin()
			put(t, l, s1, id)
			time.Sleep(50 * time.Millisecond)
			if n := v.count(); n != int(id[0]-'a') {
				t.Errorf("%d records are shown beside a series, want those before it", n)
			}
			b.end()
			time.Sleep(25 * time.Millisecond)
			if n := v.count(); n != int(id[0]-'a')+1 {
				t.Errorf("%d records are shown behind a series, want all", n)
			}
		}
		put(t, l, s1, "d")
		time.Sleep(5 * time.Millisecond)
		v.has(t, "a", "b", "c", "d")
	})
}

func TestViewStandsAsideNoLongerThanItMay(t *testing.T) {
	onShelf(t, func(t *testing.T, l *log.Log, _ *logtest.Mem) {
		v, b := &shelf{}, newBulky(l)
		stop := running(t, &projector.Runner{Log: b, View: v})
		defer stop()
		b.begin()
		for i, id := range []string{"a", "b", "c"} {
			put(t, l, s1, id)
			time.Sleep(105 * time.Millisecond)
			if n := v.count(); n != i+1 {
				t.Errorf("%d records are shown, want %d", n, i+1)
			}
		}
		b.end()
	})
}

func TestNobodyWaitsForALargeSeries(t *testing.T) {
	onShelf(t, func(t *testing.T, l *log.Log, _ *logtest.Mem) {
		v, b := &shelf{}, newBulky(l)
		r := &projector.Runner{Log: b, View: v}
		stop := running(t, r)
		defer stop()
		b.begin()
		for _, id := range []string{"a", "b"} {
			put(t, l, s1, id)
			begun := time.Now()
			if err := r.Wait(t.Context(), lastOffset(t, l)); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(begun); took > 5*time.Millisecond {
				t.Errorf("waited for %v", took)
			}
		}
		b.end()
	})
}
