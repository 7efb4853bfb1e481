package tavern_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallylog/tally/log"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// need gives the value of a call that must work.
func need[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// meeting is a backend on which several decide at once, however few processors there are: of
// those that are expected each has decided before a publication of one of them is heard.
type meeting struct {
	log.Backend
	missing atomic.Int64
}

// expect says how many will publish.
func (m *meeting) expect(n int) { m.missing.Store(int64(n)) }

// leave says that one of them is over, whether it published or not.
func (m *meeting) leave() { m.missing.Add(-1) }

// Publish waits for those who are missing. One may stand behind another's publication, so it
// does not wait for ever.
func (m *meeting) Publish(ctx context.Context, p log.Publication) (log.Receipt, error) {
	m.missing.Add(-1)
	for until := time.Now().Add(20 * time.Millisecond); m.missing.Load() > 0 && time.Now().Before(until); {
		time.Sleep(50 * time.Microsecond)
	}
	return m.Backend.Publish(ctx, p)
}
