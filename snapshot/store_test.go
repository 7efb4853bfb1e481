package snapshot_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/snapshot"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const fold = "session"

// at makes a snapshot whose data say what it is of.
func at(sub events.Subject, offset events.Offset) snapshot.Snapshot {
	return snapshot.Snapshot{
		Meta: snapshot.Meta{Subject: sub, Fold: fold, Version: 1, Offset: offset, EventID: fmt.Sprintf("e-%d", offset),
			Live: []snapshot.Interval{{From: 1, To: offset}}},
		Data: fmt.Appendf(nil, "%s %v\n\x00\xff", sub.NATS(), offset),
	}
}

func mustPut(t *testing.T, st snapshot.Store, s snapshot.Snapshot) {
	t.Helper()
	if err := st.Put(t.Context(), s); err != nil {
		t.Fatal(err)
	}
}

func mustList(t *testing.T, st snapshot.Store, sub events.Subject) []snapshot.Meta {
	t.Helper()
	list, err := st.List(t.Context(), sub, fold)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// mustHold checks that exactly these snapshots of a subject are there, newest
// first, and can be read.
func mustHold(t *testing.T, st snapshot.Store, sub events.Subject, want ...snapshot.Snapshot) {
	t.Helper()
	var got []snapshot.Snapshot
	for _, m := range mustList(t, st, sub) {
		s, err := st.Get(t.Context(), m)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, s)
	}
	for i := range want {
		want[i].Hash = snapshot.Sum(want[i].Data)
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("%s (-want +got):\n%s", sub, diff)
	}
}

// all lists what All yields, and the errors.
func all(t *testing.T, st snapshot.Store) (metas []snapshot.Meta, errs []error) {
	t.Helper()
	for m, err := range st.All(t.Context()) {
		if err != nil {
			errs = append(errs, err)
			continue
		}
		metas = append(metas, m)
	}
	return metas, errs
}

func TestStores(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) snapshot.Store{
		"Files": func(t *testing.T) snapshot.Store { return snapshot.NewFiles(t.TempDir() + "/./snapshots/") },
		"Mem":   func(*testing.T) snapshot.Store { return &snapshot.Mem{} },
	} {
		t.Run(name, func(t *testing.T) {
			for _, promise := range []struct {
				name string
				run  func(*testing.T, snapshot.Store)
			}{
				{"EmptyIsEmpty", emptyIsEmpty},
				{"GivesBackWhatWasPut", givesBackWhatWasPut},
				{"NewestFirst", newestFirst},
				{"SameKeyReplaces", sameKeyReplaces},
				{"DeleteTakesOne", deleteTakesOne},
				{"HostileIDs", hostileIDs},
				{"LongIDsStayApart", longIDsStayApart},
				{"BytesAreTheReaders", bytesAreTheReaders},
				{"ManyAtOnce", manyAtOnce},
			} {
				t.Run(promise.name, func(t *testing.T) { promise.run(t, open(t)) })
			}
		})
	}
}

var s1 = events.Session("", "s1")

func emptyIsEmpty(t *testing.T, st snapshot.Store) {
	mustHold(t, st, s1)
	if metas, errs := all(t, st); len(metas)+len(errs) > 0 {
		t.Errorf("all of an empty store: got %v, %v", metas, errs)
	}
	if _, err := st.Get(t.Context(), at(s1, 1).Meta); !errors.Is(err, snapshot.ErrNotFound) {
		t.Errorf("get from an empty store: got %v, want ErrNotFound", err)
	}
	if err := st.Delete(t.Context(), at(s1, 1).Meta); err != nil {
		t.Errorf("delete from an empty store: %v", err)
	}
}

func givesBackWhatWasPut(t *testing.T, st snapshot.Store) {
	for _, s := range []snapshot.Snapshot{
		at(s1, 7),
		{Meta: snapshot.Meta{Subject: events.Session("", "nothing live, no data"), Fold: fold, Version: 1, Offset: 1, EventID: "e"}},
		{Meta: snapshot.Meta{Subject: events.Session("acme", "s1"), Fold: fold, Version: -3, Offset: events.MaxOffset, EventID: "é\n\"\\",
			Live: []snapshot.Interval{{From: 1, To: 1}, {From: 5, To: 9}}, Kept: "rewind target"}, Data: []byte("\n\n")},
	} {
		mustPut(t, st, s)
		mustHold(t, st, s.Subject, s)
	}
	if metas, errs := all(t, st); len(metas) != 3 || len(errs) > 0 {
		t.Errorf("all: got %v, %v, want 3 snapshots", metas, errs)
	}
	if list, err := st.List(t.Context(), s1, "another"); err != nil || len(list) > 0 {
		t.Errorf("list of another fold: got %v, %v, want none", list, err)
	}
}

func newestFirst(t *testing.T, st snapshot.Store) {
	want := []snapshot.Snapshot{at(s1, 1000), at(s1, 101), at(s1, 100), at(s1, 100), at(s1, 9)}
	want[2].Version = 2
	for _, i := range []int{3, 1, 4, 0, 2} {
		mustPut(t, st, want[i])
	}
	mustHold(t, st, s1, want...)
}

func sameKeyReplaces(t *testing.T, st snapshot.Store) {
	old, fresh := at(s1, 7), at(s1, 7)
	fresh.EventID, fresh.Kept, fresh.Data, fresh.Live = "another", "fork target", []byte("fresh"), nil
	mustPut(t, st, old)
	mustPut(t, st, fresh)
	mustHold(t, st, s1, fresh)
}

func deleteTakesOne(t *testing.T, st snapshot.Store) {
	other := at(events.Session("", "s2"), 7)
	for _, s := range []snapshot.Snapshot{at(s1, 6), at(s1, 7), at(s1, 8), other} {
		mustPut(t, st, s)
	}
	for range 2 {
		if err := st.Delete(t.Context(), at(s1, 7).Meta); err != nil {
			t.Fatal(err)
		}
	}
	mustHold(t, st, s1, at(s1, 8), at(s1, 6))
	mustHold(t, st, other.Subject, other)
}

func hostileIDs(t *testing.T, st snapshot.Store) {
	ids := []string{"../x", "..", ".", "/", "/etc/passwd", "a/b", "a\\b", "a.b", "*", ">", "a b", "é😀", "\x00", "\xff\xfe", "=2E", "A", "con",
		strings.Repeat("/", 512), strings.Repeat("x", 512), ".tally-tmp-1", "session.1.00000000000000000007"}
	var subjects []events.Subject
	for _, ns := range []string{"default", "acme"} {
		for _, kind := range []string{events.KindSession, "recipe"} {
			for _, id := range ids {
				subjects = append(subjects, events.Subject{Namespace: ns, Kind: kind, ID: id})
			}
		}
	}
	for i, sub := range subjects {
		mustPut(t, st, at(sub, events.Offset(i+1)))
	}
	for i, sub := range subjects {
		mustHold(t, st, sub, at(sub, events.Offset(i+1)))
	}
	if metas, errs := all(t, st); len(metas) != len(subjects) || len(errs) > 0 {
		t.Errorf("all: got %d snapshots, want %d; errors %v", len(metas), len(subjects), errs)
	}
}

func longIDsStayApart(t *testing.T, st snapshot.Store) {
	long := strings.Repeat("x", 400)
	var want []snapshot.Snapshot
	for i, id := range []string{long + "a", long + "b", long + "ab", long} {
		s := at(events.Session("", id), events.Offset(i+1))
		want = append(want, s)
		mustPut(t, st, s)
	}
	for _, s := range want {
		mustHold(t, st, s.Subject, s)
	}
}

func bytesAreTheReaders(t *testing.T, st snapshot.Store) {
	s := at(s1, 7)
	data := []byte("data")
	s.Data = data
	mustPut(t, st, s)
	data[0] = 'X'
	got, err := st.Get(t.Context(), s.Meta)
	if err != nil || string(got.Data) != "data" {
		t.Fatalf("get after the writer changed its data: got %q, %v, want data", got.Data, err)
	}
	got.Data[0] = 'Y'
	if again, err := st.Get(t.Context(), s.Meta); err != nil || string(again.Data) != "data" {
		t.Fatalf("get after a reader changed its data: got %q, %v, want data", again.Data, err)
	}
}

func manyAtOnce(t *testing.T, st snapshot.Store) {
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range events.Offset(10) {
				if err := st.Put(t.Context(), at(s1, i+1)); err != nil {
					t.Error(err)
				}
				if err := st.Delete(t.Context(), at(s1, i).Meta); err != nil {
					t.Error(err)
				}
				for _, err := range st.All(t.Context()) {
					if err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	mustPut(t, st, at(s1, 10))
	if list := mustList(t, st, s1); list[0].Offset != 10 || len(list) > 1 && list[1].Offset == 10 {
		t.Errorf("list after concurrent calls: got %v, want 10 first and once", list)
	}
}
