package tavern_test

import (
	"context"
	"errors"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
	"github.com/tallylog/tally/stores/tavern"
)

// noRoom is the error of a tree that cannot write its files.
var noRoom = &events.TreeError{Tree: "t", Err: errors.New("no room")}

// storeWithTree returns a store in memory, and the answer of its trees to appends: nil if files show them.
func storeWithTree(t *testing.T) (st *tally.Store, answer *error) {
	t.Helper()
	answer = new(error)
	shows := func(context.Context, events.Offset, ...events.Subject) error { return *answer }
	l, err := log.OpenOn(t.Context(), memlog.New(memlog.Config{}), log.Config{})
	must(t, err)
	st, err = tally.Open(t.Context(), l, tally.Config{Host: tally.Host{Shows: shows}})
	must(t, err)
	t.Cleanup(func() { st.Close() })
	return st, answer
}

func unshown(t *testing.T, what string, err error) {
	t.Helper()
	if _, ok := errors.AsType[*events.TreeError](err); !ok {
		t.Errorf("%s: %v, want a *TreeError", what, err)
	}
}

// A stored claim is valid, even if files of a tree do not show it: the worker gets it with an error about the files,
// and can renew and finish it.
func TestClaimUnshown(t *testing.T) {
	ctx := t.Context()
	st, answer := storeWithTree(t)
	q := tavern.QueueOf(st, "q")
	for range 2 {
		_, err := q.Enqueue(ctx, tavern.Item{Body: []byte("b")})
		must(t, err)
	}
	for _, next := range []func(context.Context, string) (*tavern.Claim, error){q.Next, q.TryClaim} {
		*answer = noRoom
		c, err := next(ctx, "w")
		unshown(t, "B-41 a claim", err)
		if c == nil || c.Fence == 0 {
			t.Fatal("B-41 the stored claim was not returned")
		}
		_, err = c.Renew(ctx)
		unshown(t, "B-41 a renewal", err)
		unshown(t, "B-41 the end", c.Finish(ctx, nil))
		*answer = nil
		must(t, c.Finish(ctx, nil)) // the same event
	}
	if _, err := q.TryClaim(ctx, "w"); err == nil {
		t.Error("a finished item was claimed again")
	}
}
