package tally_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// owned returns an event that writes an owner's document of a given size.
func owned(owner string, size int) events.Event {
	e := events.Event{Type: events.TypeDocumentWritten, ContentType: "text/plain", Data: []byte(strings.Repeat("x", size))}
	return e.WithExtension(events.ExtDoc, events.DocMeta{Owner: owner}.String())
}

// writeAs creates a document of an owner.
func writeAs(ctx context.Context, st *tally.Store, owner, kind, id string, size int) error {
	_, err := st.Append(ctx, events.Document(st.Namespace(), kind, id), log.At(0), owned(owner, size))
	return err
}

// erase deletes a document.
func erase(t *testing.T, st *tally.Store, kind, id, reason string) {
	t.Helper()
	sub := events.Document(st.Namespace(), kind, id)
	last, err := st.Log.Last(t.Context(), sub)
	must(t, err)
	e, err := events.New("urn:test", sub, &events.DocumentDeleted{Reason: reason})
	must(t, err)
	_, err = st.Append(t.Context(), sub, log.At(last.Offset), e)
	must(t, err)
}

// refused checks that an error is the given *log.QuotaError.
func refused(t *testing.T, err error, want log.QuotaError) {
	t.Helper()
	have, ok := errors.AsType[*log.QuotaError](err)
	if !ok || *have != want {
		t.Errorf("got %v, want %v", err, &want)
	}
}

// limits sets limits, and returns false if the store cannot set them.
func limits(t *testing.T, st *tally.Store, set map[string]int64) (can bool) {
	t.Helper()
	for scope, bytes := range set {
		err := st.SetLimit(t.Context(), scope, bytes)
		if errors.Is(err, tally.ErrNoLimits) {
			return false
		}
		must(t, err)
	}
	return true
}

func TestLimits(t *testing.T) {
	t.Run("D-44 limits by store, owner and kind", func(t *testing.T) { storetest.Each(t, testLimits) })
	t.Run("D-70 limits hold for many writers at once", func(t *testing.T) { storetest.Each(t, testLimitsTogether) })
}

// Usage shows the use of the store, of owners and of kinds, and warns near a limit. An append beyond a limit is refused
// with scope and numbers. Other owners and kinds are not affected.
func testLimits(t *testing.T, st *tally.Store) {
	ctx := t.Context()
	can := limits(t, st, map[string]int64{"store": 1000, "owner:ann": 100, "kind:note": 50})
	must(t, writeAs(ctx, st, "ann", "doc", "a", 79))
	must(t, writeAs(ctx, st, "bob", "note", "n", 50))
	usage, err := st.Usage(ctx)
	must(t, err)
	want := []projector.Usage{{Scope: "store", Documents: 2, Bytes: 129, Limit: 1000}, {Scope: "owner:ann", Documents: 1, Bytes: 79, Limit: 100},
		{Scope: "owner:bob", Documents: 1, Bytes: 50}, {Scope: "kind:doc", Documents: 1, Bytes: 79}, {Scope: "kind:note", Documents: 1, Bytes: 50, Limit: 50}}
	if !can {
		for i := range want {
			want[i].Limit = 0
		}
	}
	if diff := cmp.Diff(want, usage); diff != "" {
		t.Errorf("usage (-want +got):\n%s", diff)
	}
	if !can { // on a server of others, usage is shown and nothing is refused
		must(t, writeAs(ctx, st, "ann", "note", "b", 5000))
		return
	}
	if usage[1].Warns() || !usage[4].Warns() {
		t.Errorf("got warnings %+v, want one for kind:note", usage)
	}
	must(t, writeAs(ctx, st, "ann", "doc", "b", 1))
	refused(t, writeAs(ctx, st, "ann", "doc", "c", 21), log.QuotaError{Scope: "owner:ann", Meter: "live", Limit: 100, Have: 80, Want: 101})
	refused(t, writeAs(ctx, st, "cid", "note", "c", 1), log.QuotaError{Scope: "kind:note", Meter: "live", Limit: 50, Have: 50, Want: 51})
	refused(t, writeAs(ctx, st, "cid", "doc", "c", 871), log.QuotaError{Scope: "store", Meter: "live", Limit: 1000, Have: 130, Want: 1001})
	if _, err := st.Loader().Document(ctx, events.Document("", "doc", "c"), 0); !errors.Is(err, tally.ErrNotFound) {
		t.Errorf("read of a refused document: got %v, want ErrNotFound", err)
	}
	must(t, writeAs(ctx, st, "bob", "doc", "b2", 700)) // an owner without a limit
	usage, err = st.Usage(ctx)
	must(t, err)
	if !usage[1].Warns() || !usage[0].Warns() {
		t.Errorf("got %+v, want warnings for 80 of 100 and 830 of 1000", usage)
	}
	var none *events.InvalidError
	if err := st.SetLimit(ctx, "owners", 1); !errors.As(err, &none) {
		t.Errorf("invalid scope: got %v, want an *InvalidError", err)
	}
	if err := st.SetLimit(ctx, "store", -1); !errors.As(err, &none) {
		t.Errorf("negative limit: got %v, want an *InvalidError", err)
	}
	must(t, st.SetLimit(ctx, "owner:ann", 0))
	must(t, writeAs(ctx, st, "ann", "doc", "c", 21))
	_, err = st.Session("s").AppendTurns(ctx, "main", slices.Repeat([]byte(`1`), 5000)) // a session is not limited
	must(t, err)
}

// With 64 concurrent writers, exactly as many documents are stored as the limit allows. Deleting frees space, purging a
// deleted document frees no more, and other owners are not affected.
func testLimitsTogether(t *testing.T, st *tally.Store) {
	const writers, size, fit = 64, 100, 200
	ctx := t.Context()
	if !limits(t, st, map[string]int64{"owner:ann": fit*size + size - 1}) {
		if err := st.SetLimit(ctx, "owner:ann", 1); !errors.Is(err, tally.ErrNoLimits) {
			t.Errorf("set a limit on a server of others: got %v, want ErrNoLimits", err)
		}
		return
	}
	var stored, others atomic.Int64
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for n := range 2 * fit / writers {
				err := writeAs(ctx, st, "ann", "doc", fmt.Sprintf("ann/%d/%d", w, n), size)
				full, isFull := errors.AsType[*log.QuotaError](err)
				switch {
				case err == nil:
					stored.Add(1)
				case !isFull || full.Want <= full.Limit:
					t.Error(err)
				}
				if err := writeAs(ctx, st, "bob", "doc", fmt.Sprintf("bob/%d/%d", w, n), size); err == nil {
					others.Add(1)
				}
			}
		})
	}
	all.Wait()
	if stored.Load() != fit || others.Load() != writers*(2*fit/writers) {
		t.Errorf("%d documents of ann are stored, want %d; %d of bob, want all", stored.Load(), fit, others.Load())
	}
	first := ""
	for info, err := range st.Subjects(ctx, "doc") {
		must(t, err)
		if strings.HasPrefix(info.Subject.ID, "ann/") {
			first = info.Subject.ID
			break
		}
	}
	erase(t, st, "doc", first, "done")
	must(t, writeAs(ctx, st, "ann", "doc", "one more", size))
	erase(t, st, "doc", first, events.ReasonPurged)
	refused(t, writeAs(ctx, st, "ann", "doc", "another", size), log.QuotaError{Scope: "owner:ann", Meter: "live", Limit: fit*size + size - 1, Have: fit * size, Want: fit*size + size})
}

// Limits and usage outlive the owner of a store. An attached process of the same user can set them too, and the view,
// the log and the owner count the same.
func TestLimitsOutlive(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	open := func() *tally.Store {
		st, err := embedded.Open(ctx, embedded.Options{Store: dir, Backend: "local"})
		must(t, err)
		return st
	}
	st := open()
	must(t, st.SetLimit(ctx, "owner:ann", 100))
	must(t, writeAs(ctx, st, "ann", "doc", "a", 60))
	must(t, st.Close())

	st = open()
	refused(t, writeAs(ctx, st, "ann", "doc", "b", 41), log.QuotaError{Scope: "owner:ann", Meter: "live", Limit: 100, Have: 60, Want: 101})
	attached := open()
	refused(t, writeAs(ctx, attached, "ann", "doc", "b", 41), log.QuotaError{Scope: "owner:ann", Meter: "live", Limit: 100, Have: 60, Want: 101})
	must(t, attached.SetLimit(ctx, "owner:ann", 101))
	must(t, writeAs(ctx, attached, "ann", "doc", "b", 41))
	large := strings.Repeat("x", events.MaxData+1) // by reference
	_, err := attached.Append(ctx, events.Document("", "doc", "large"), log.At(0), events.Event{Type: events.TypeDocumentWritten, ContentType: "text/plain", Data: []byte(large)})
	must(t, err)
	want := []projector.Usage{{Scope: "store", Documents: 3, Bytes: 101 + int64(len(large))}, {Scope: "owner:", Documents: 1, Bytes: int64(len(large))},
		{Scope: "owner:ann", Documents: 2, Bytes: 101, Limit: 101}, {Scope: "kind:doc", Documents: 3, Bytes: 101 + int64(len(large))}}
	head, err := st.Log.Head(ctx)
	must(t, err)
	for name, from := range map[string]*tally.Store{"the owner": st, "an attached process, by the log or the view": attached} {
		have, err := from.Usage(ctx)
		if diff := cmp.Diff(want, have); err != nil || diff != "" {
			t.Errorf("usage by %s: %v (-want +got):\n%s", name, err, diff)
		}
	}
	waiting, stop := context.WithTimeout(ctx, testkit.Patience(time.Minute))
	defer stop()
	must(t, st.Wait(waiting, "catalog", head))
	have, err := attached.Usage(ctx)
	if diff := cmp.Diff(want, have); err != nil || diff != "" {
		t.Errorf("usage by the view: %v (-want +got):\n%s", err, diff)
	}
	must(t, errors.Join(attached.Close(), st.Close()))
}
