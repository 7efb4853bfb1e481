package tavern_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// need returns the value of a call that must succeed.
func need[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// bound is how long a test waits for an event that must happen.
const bound = time.Minute

// heard returns the next value of a channel. If none comes, the test fails and says what it waited for.
func heard[T any](t testing.TB, from <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(testkit.Patience(bound)):
		t.Fatalf("timeout: want %s", what)
	}
	return v
}

// await waits until a condition holds.
func await(t testing.TB, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(testkit.Patience(bound)); !so(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("timeout: want %s", what)
		}
	}
}

// meeting is a backend on which several callers decide at the same time, however few processors there are: each
// expected caller has decided before a publication of another one is delivered.
type meeting struct {
	log.Backend
	missing atomic.Int64
}

// expect sets how many callers will publish.
func (m *meeting) expect(n int) { m.missing.Store(int64(n)) }

// leave reports that a caller has ended, whether it published or not.
func (m *meeting) leave() { m.missing.Add(-1) }

// Publish waits for the missing callers, but not forever, because a caller may wait for another's publication.
func (m *meeting) Publish(ctx context.Context, p log.Publication) (log.Receipt, error) {
	m.missing.Add(-1)
	for until := time.Now().Add(20 * time.Millisecond); m.missing.Load() > 0 && time.Now().Before(until); {
		time.Sleep(50 * time.Microsecond)
	}
	return m.Backend.Publish(ctx, p)
}
