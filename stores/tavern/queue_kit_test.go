package tavern_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
	"github.com/tallylog/tally/stores/tavern"
)

// queueClock is the clock of a log, which a test sets.
type queueClock struct{ ahead atomic.Int64 }

func (c *queueClock) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

// queueStore returns a store in memory whose clock a test sets.
func queueStore(t *testing.T) (*tally.Store, *queueClock) {
	t.Helper()
	c := new(queueClock)
	l := need(log.OpenOn(t.Context(), memlog.New(memlog.Config{Now: c.now}), log.Config{Now: c.now}))
	st := need(tally.Open(t.Context(), l, tally.Config{}))
	t.Cleanup(func() { must(t, st.Close()) })
	return st, c
}

// queueJump moves the log's time forward, by a record with that time.
func queueJump(t *testing.T, st *tally.Store, c *queueClock, by time.Duration) {
	t.Helper()
	c.ahead.Add(int64(by))
	need(st.Session("elsewhere").AppendTurns(t.Context(), events.MainThread, []byte(`"later"`)))
}

func queueItems(n int) []tavern.Item {
	list := make([]tavern.Item, n)
	for i := range list {
		list[i] = tavern.Item{ID: fmt.Sprintf("i%04d", i), Body: fmt.Appendf(nil, `{"n":%d}`, i)}
	}
	return list
}

// queueIDs returns the ids of a list's items with their states.
func queueIDs(list []tavern.ItemStatus) (ids []string) {
	for _, s := range list {
		ids = append(ids, s.ID+" "+string(s.State))
	}
	return ids
}

// queueSoon returns a context that ends if a test hangs.
func queueSoon(t *testing.T) context.Context { return queueWithin(t, testkit.Patience(bound)) }

// queueWithin is queueSoon for a test that takes longer.
func queueWithin(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeoutCause(t.Context(), d, fmt.Errorf("no worker got an item that the test made free within %v", d))
	t.Cleanup(cancel)
	return ctx
}

// queueNone checks that no item can be handed out, and returns the worker's error.
func queueNone(t *testing.T, q *tavern.Queue) *tavern.EmptyError {
	t.Helper()
	c, err := q.TryClaim(t.Context(), "nobody")
	empty, ok := errors.AsType[*tavern.EmptyError](err)
	if !ok {
		t.Fatalf("got the claim %+v, error %v, want none", c, err)
	}
	return empty
}

// queueOpen counts the open items.
func queueOpen(ctx context.Context, q *tavern.Queue) (int, error) {
	list, _, err := q.List(ctx, tavern.ListQuery{})
	return len(list), err
}
