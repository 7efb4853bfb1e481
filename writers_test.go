package tally_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit/logtest"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

func mustConflict(t *testing.T, what string, do func() error, have events.Offset, sha string) {
	t.Helper()
	err := do()
	conflict, ok := errors.AsType[*tally.DocumentConflictError](err)
	if !ok || !errors.Is(err, log.ErrConflict) || conflict.Have != have || conflict.SHA256 != sha {
		t.Errorf("%s: got %v (%+v), want a conflict with revision %v, SHA-256 %s", what, err, conflict, have, sha)
	}
}

// Of several writers on one base exactly one succeeds, and each other one gets the present revision.
func oneOfTwoWriters(t *testing.T, d *tally.Documents) {
	ctx := t.Context()
	rev := mustCreate(t, d, "doc", "d49", text("base"))
	if _, err := d.Lease(ctx, "doc", "d49", "agent-2", time.Minute); err != nil {
		t.Fatal(err)
	}
	const writers = 8
	errs := make([]error, writers)
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() { _, errs[i] = d.Update(ctx, "doc", "d49", rev.Offset, text(fmt.Sprint("writer ", i))) })
	}
	wg.Wait()
	now, err := d.Read(ctx, "doc", "d49")
	if err != nil {
		t.Fatal(err)
	}
	won := 0
	for i, err := range errs {
		if err == nil {
			won++
			mustHold(t, d, "doc", "d49", fmt.Sprint("writer ", i))
			continue
		}
		want := &tally.DocumentConflictError{Subject: now.Subject, Base: rev.Offset, Have: now.Offset, SHA256: now.Direct.SHA256, Holder: "agent-2"}
		have, _ := errors.AsType[*tally.DocumentConflictError](err)
		if diff := cmp.Diff(want, have); diff != "" {
			t.Errorf("writer %d: %v (-want +got):\n%s", i, err, diff)
		}
	}
	if won != 1 {
		t.Errorf("%d of %d writers succeeded, want 1", won, writers)
	}
	_, held := d.Lease(ctx, "doc", "d49", "agent-1", time.Minute)
	if lease, ok := errors.AsType[*tally.LeaseError](held); !ok || lease.Lease.Holder != "agent-2" || !errors.Is(held, log.ErrConflict) {
		t.Errorf("lease held by another holder: got %v, want a *LeaseError", held)
	}
	if err := d.Release(ctx, "doc", "d49", "agent-1"); !errors.Is(err, log.ErrConflict) {
		t.Errorf("release of another holder's lease: got %v, want ErrConflict", err)
	}
	if err := d.Release(ctx, "doc", "d49", "agent-2"); err != nil {
		t.Fatal(err)
	}
	if lease, err := d.Holder(ctx, "doc", "d49"); err != nil || lease != (tally.Lease{}) {
		t.Errorf("holder after the release: got %+v, %v, want none", lease, err)
	}
	if _, err := d.Lease(ctx, "doc", "d49", "agent-1", time.Nanosecond); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Millisecond)
	if _, err := d.Lease(ctx, "doc", "d49", "agent-2", time.Minute); err != nil {
		t.Errorf("lease after the end of another one: %v", err)
	}
	// The loser continues from the conflict's revision.
	conflict, _ := errors.AsType[*tally.DocumentConflictError](errs[slices.IndexFunc(errs, func(err error) bool { return err != nil })])
	if _, err := d.Update(ctx, "doc", "d49", conflict.Have, text("merged")); err != nil {
		t.Error(err)
	}
}

// A record of another program's type in a document is not a revision, and does not prevent a write.
func TestDocumentWithStrangeRecords(t *testing.T) {
	st := storetest.Memory(t, tally.Config{})
	d, ctx := st.Documents(), t.Context()
	doc := events.Document("default", "doc", "x")
	strange := func(e events.Event) {
		t.Helper()
		if _, err := st.Append(ctx, doc, log.Any, e); err != nil {
			t.Fatal(err)
		}
	}
	strange(events.Event{Type: "com.example.x"})
	rev := mustCreate(t, d, "doc", "x", text("one"))
	strange(events.Event{Type: "com.example.x"})
	mustHold(t, d, "doc", "x", "one")
	next, err := d.Update(ctx, "doc", "x", rev.Offset, text("two"))
	if err != nil {
		t.Fatal(err)
	}
	strange(events.Event{Type: "com.example.x"})
	if err := d.Tx(ctx, func(tx *tally.Tx) error { return tx.Update(ctx, "doc", "x", text("three")) }); err != nil {
		t.Error(err)
	}
	strange(events.Event{Type: "com.example.x"})
	mustConflict(t, "stale", func() error { _, err := d.Delete(ctx, "doc", "x", next.Offset, ""); return err }, next.Offset+2, sum([]byte("three")))
	if _, err := d.Delete(ctx, "doc", "x", 0, ""); err != nil {
		t.Error(err)
	}
	mustHold(t, d, "doc", "x", "")
}

// A write without an answer makes one revision if it is sent again, by the store or, with the same id, by the program.
func TestDocumentOutcomeUnknown(t *testing.T) {
	storetest.EachFault(t, func(t *testing.T, st *tally.Store, call storetest.Call) {
		d, ctx := st.Documents(), t.Context()
		var rev projector.Revision
		call("Create", 1, func() (err error) { rev, err = d.Create(ctx, "doc", "x", text("1")); return err })
		call("Update", 1, func() (err error) { rev, err = d.Update(ctx, "doc", "x", rev.Offset, text("2")); return err })
		call("Save", 1, func() (err error) {
			w := text("3")
			w.ID = "an id"
			rev, err = d.Save(ctx, "doc", "x", w)
			return err
		})
		call("Lease", 1, func() error { _, err := d.Lease(ctx, "doc", "x", "me", time.Minute); return err })
		call("Delete", 1, func() error { _, err := d.Delete(ctx, "doc", "x", rev.Offset, ""); return err })
	})
	var leave context.CancelFunc // ends the context of the first try; nil: no fault
	tries := 0
	st := storetest.Faulty(t, func() logtest.Fault {
		if tries++; leave == nil {
			return logtest.None
		}
		if tries > 1 {
			leave()
			return logtest.Dropped
		}
		return logtest.AckLost
	})
	d, ctx := st.Documents(), t.Context()
	try := func(name string, do func(ctx context.Context) (projector.Revision, error)) projector.Revision {
		t.Helper()
		var brief context.Context
		brief, leave = context.WithCancel(ctx)
		tries = 0
		_, _ = do(brief) // the outcome is unknown or an error
		leave = nil
		rev, err := do(ctx)
		if err != nil {
			t.Errorf("repeated %s: %v", name, err)
		}
		if tries == 0 {
			t.Errorf("%s: no fault was tried", name)
		}
		if n := len(mustHistory(t, d, "doc", "x")); events.Offset(n) != rev.Offset {
			t.Errorf("%s made %d revisions, want %v", name, n, rev.Offset)
		}
		return rev
	}
	named := func(id, s string) tally.Write { w := text(s); w.ID = id; return w }
	rev := try("create", func(ctx context.Context) (projector.Revision, error) {
		return d.Create(ctx, "doc", "x", named("a", "1"))
	})
	try("update", func(ctx context.Context) (projector.Revision, error) {
		return d.Update(ctx, "doc", "x", rev.Offset, named("b", "2"))
	})
	try("save", func(ctx context.Context) (projector.Revision, error) { return d.Save(ctx, "doc", "x", named("c", "3")) })
	if again, err := d.Update(ctx, "doc", "x", rev.Offset, named("b", "2")); err != nil || again.Offset != 2 {
		t.Errorf("update repeated after others: got %+v, %v, want offset 2", again, err)
	}
	if _, err := d.Update(ctx, "doc", "x", rev.Offset, named("b", "another text")); err == nil {
		t.Error("update with a used id and other content: got no error")
	}
	if _, err := d.Save(ctx, "doc", "x", named("c", "another text")); !invalid(err) {
		t.Errorf("save with a used id and other content: got %v, want an *InvalidError", err)
	}
}
