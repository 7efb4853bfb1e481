package errata_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
	"github.com/tallylog/tally/stores/errata"
)

// failingDisk allows a number of syncs, and fails all later ones.
type failingDisk struct{ allowed atomic.Int64 }

var errDisk = errors.New("the disk is gone")

func (d *failingDisk) sync(string) error {
	if d.allowed.Add(-1) < 0 {
		return errDisk
	}
	return nil
}

// open opens a store on a log that acknowledges before it syncs, and a panel on it.
func (d *failingDisk) open(t *testing.T) (*log.Log, *errata.Store) {
	t.Helper()
	d.allowed.Store(1 << 40)
	l, err := log.OpenOn(t.Context(), memlog.New(memlog.Config{}), log.Config{Host: log.Host{Sync: d.sync}})
	must(t, err)
	t.Cleanup(func() { l.Close() }) // it would sync, and fails
	st, err := tally.Open(t.Context(), l, tally.Config{})
	must(t, err)
	return l, newErrata(t, st, errata.Options{SessionID: "e47", Meta: errata.Metadata{ID: "e47"}})
}

// Every call that changes a session returns when the change is durable, or returns the error. The call omits none of
// its syncs and waits for each. So the disk fails after no sync, after one, after two, until the call succeeds.
func TestChangesWaitForTheDisk(t *testing.T) {
	t.Run("E-47 every change waits for the disk", func(t *testing.T) {
		calls := 0
		for name := range everyChange(nil) {
			calls++
			for syncs := int64(0); ; syncs++ {
				if syncs > 20 {
					t.Fatalf("%s: the call does not succeed with any number of syncs", name)
				}
				if waited := failAfter(t, name, syncs); waited {
					break
				}
			}
		}
		if calls < 18 {
			t.Errorf("only %d calls change a session", calls)
		}
	})
}

// everyChange returns the calls of changes, and the call that creates a session.
func everyChange(e *errata.Store) func(func(string, func(context.Context) error) bool) {
	return func(yield func(string, func(context.Context) error) bool) {
		if !yield("SaveInitialMeta", func(ctx context.Context) error { return e.SaveInitialMeta(ctx) }) {
			return
		}
		for name, call := range changes(e) {
			if !yield(name, call) {
				return
			}
		}
	}
}

// failAfter makes one call on a disk that fails after some syncs, and reports whether the call succeeded before that.
func failAfter(t *testing.T, name string, syncs int64) bool {
	t.Helper()
	ctx, disk := t.Context(), &failingDisk{}
	l, e := disk.open(t)
	for before, call := range everyChange(e) {
		if before == name {
			head, err := l.Head(ctx)
			must(t, err)
			disk.allowed.Store(syncs)
			err = call(ctx)
			left := disk.allowed.Load()
			if err != nil {
				if left >= 0 {
					t.Errorf("%s: got %v before the disk failed", name, err)
					return true
				}
				return false
			}
			after, err := l.Head(ctx)
			must(t, err)
			durable, err := l.Durable(ctx)
			must(t, err)
			if after == head || durable < after {
				t.Errorf("%s returns without an error: before it %v, after it %v, durable up to %v", name, head, after, durable)
			}
			return true
		}
		must(t, call(ctx))
		if before == "SaveInitialMeta" {
			playRun(t, e.Session(), "q", 0)
		}
	}
	t.Fatalf("unknown call %s", name)
	return true
}
