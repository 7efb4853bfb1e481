package projector_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/snapshot"
)

// firstRevisions returns the offsets of the newest revisions, at most limit.
func firstRevisions(t *testing.T, l *projector.Loader, limit int) (list []events.Offset) {
	t.Helper()
	for rev, err := range l.Revisions(t.Context(), recipe, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if list = append(list, rev.Offset); len(list) == limit {
			break
		}
	}
	return list
}

func chunksOf(t *testing.T, st snapshot.Store) []snapshot.Meta {
	t.Helper()
	list, err := st.List(t.Context(), recipe, projector.DocumentFold)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// The first reader of a long history reads all of it, and stores the chunks. Later reads cost only new and requested
// records.
func TestHistoryCostsWhatIsAsked(t *testing.T) {
	src, store := &tail{Records: longDocument(t, 10_000)}, &counted{}
	l := func() *projector.Loader { return &projector.Loader{Source: src, Snapshots: store} }
	firstRevisions(t, l(), 1)
	if n := len(chunksOf(t, store)); n != 39 || store.puts != 39 {
		t.Fatalf("%d chunks are stored after %d writes, want 39", n, store.puts)
	}
	src.read = 0
	if got := firstRevisions(t, l(), 20); len(got) != 20 || got[0] != 10_000 || got[19] != 9_981 {
		t.Errorf("newest revisions: got %v, want 10000 to 9981", got)
	}
	if limit := 10_000%256 + 1; src.read > limit || store.puts != 39 {
		t.Errorf("read %d records, want at most %d; wrote %d chunks, want 39", src.read, limit, store.puts)
	}
	src.read = 0
	d, err := l().Document(t.Context(), recipe, 77)
	if err != nil || string(d.Data) != fmt.Sprintf("%04096d", 76) || d.Last().Number != 77 {
		t.Errorf("at 77: got %v, %v, want number 77", d.Last(), err)
	}
	if limit := 10_000%256 + 2; src.read > limit {
		t.Errorf("read %d records, want at most %d", src.read, limit)
	}
	if got := firstRevisions(t, l(), 0); len(got) != 10_000 || got[9_999] != 1 {
		t.Errorf("got %d revisions, want 10000 down to 1", len(got))
	}
}

// The revisions up to an offset are all up to it, wherever stored chunks end.
func TestRevisionsUpToEachOffset(t *testing.T) {
	const n = 14
	src := &tail{Records: longDocument(t, n)}
	for records := 1; records <= 4; records++ {
		store := new(snapshot.Mem)
		l := func() *projector.Loader {
			return (&projector.Loader{Source: src, Snapshots: store}).SetChunks(records, 2)
		}
		firstRevisions(t, l(), 1) // stores the chunks
		for upto := events.Offset(1); upto <= n; upto++ {
			at := upto
			for rev, err := range l().Revisions(t.Context(), recipe, upto) {
				if err != nil || rev.Offset != at || rev.Number != int(at) {
					t.Fatalf("chunks of %d, up to %v: got revision %d at %v, %v, want %v", records, upto, rev.Number, rev.Offset, err, at)
				}
				at--
			}
			if at != 0 {
				t.Errorf("chunks of %d, up to %v: %v is missing", records, upto, at)
			}
		}
	}
}

// With any damage to the stored chunks, the history equals that of the log. Damaged chunks are rebuilt, unless the
// loader is read-only.
func TestUnsoundChunks(t *testing.T) {
	records := longDocument(t, 1100)
	for name, spoil := range map[string]func(st *snapshot.Mem, list []snapshot.Meta){
		"the newest is missing":  func(st *snapshot.Mem, list []snapshot.Meta) { spoilt(t, st.Delete(t.Context(), list[0])) },
		"one between is missing": func(st *snapshot.Mem, list []snapshot.Meta) { spoilt(t, st.Delete(t.Context(), list[2])) },
		"the first is missing":   func(st *snapshot.Mem, list []snapshot.Meta) { spoilt(t, st.Delete(t.Context(), list[3])) },
		"the newest is no chunk": func(st *snapshot.Mem, list []snapshot.Meta) {
			rewrite(t, st, list[0], func(s *snapshot.Snapshot) { s.Data = []byte("{") })
		},
		"one between is no chunk": func(st *snapshot.Mem, list []snapshot.Meta) {
			rewrite(t, st, list[1], func(s *snapshot.Snapshot) { s.Data = []byte("{") })
		},
		"of another log": func(st *snapshot.Mem, list []snapshot.Meta) {
			rewrite(t, st, list[0], func(s *snapshot.Snapshot) { s.EventID = "another" })
		},
		"of another version": func(st *snapshot.Mem, list []snapshot.Meta) {
			for _, m := range list {
				rewrite(t, st, m, func(s *snapshot.Snapshot) {
					s.Version++
					s.Data = bytes.ReplaceAll(s.Data, []byte(`"revisions"`), []byte(`"x"`))
				})
				spoilt(t, st.Delete(t.Context(), m))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, readOnly := range []bool{true, false} {
				store := new(snapshot.Mem)
				l := func() *projector.Loader { return &projector.Loader{Source: records, Snapshots: store} }
				firstRevisions(t, l(), 0)
				spoil(store, chunksOf(t, store))
				before := fmt.Sprint(chunksOf(t, store))
				looking := l()
				looking.ReadOnly = readOnly
				if got := firstRevisions(t, looking, 0); len(got) != 1100 || got[0] != 1100 || got[1099] != 1 {
					t.Errorf("got %d revisions, want 1100 down to 1", len(got))
				}
				if after := fmt.Sprint(chunksOf(t, store)); readOnly && before != after {
					t.Errorf("a read-only loader changed the chunks to %s from %s", after, before)
				} else if n := len(chunksOf(t, store)); !readOnly && n != 4 {
					t.Errorf("%d chunks are stored, want 4", n)
				}
			}
		})
	}
	t.Run("net D1 a record of a missing chunk that was lost since is listed", func(t *testing.T) {
		store := new(snapshot.Mem)
		firstRevisions(t, &projector.Loader{Source: records, Snapshots: store}, 0)
		spoilt(t, store.Delete(t.Context(), chunksOf(t, store)[2]))
		l := &projector.Loader{Source: damaged{records, []events.Offset{300}}, Snapshots: store}
		if d, err := l.History(t.Context(), recipe); err != nil || !slices.Equal(d.Damaged, []events.Offset{300}) || len(d.Revisions) != 1099 {
			t.Errorf("got %d revisions, lost %v, %v, want 1099 and the loss of 300", len(d.Revisions), d.Damaged, err)
		}
	})
}

func spoilt(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func rewrite(t *testing.T, st *snapshot.Mem, m snapshot.Meta, change func(*snapshot.Snapshot)) {
	t.Helper()
	s, err := st.Get(t.Context(), m)
	spoilt(t, err)
	change(&s)
	spoilt(t, st.Put(t.Context(), s))
}

// A purge leaves nothing of the earlier revisions in the stored chunks, also if a full fold meets it first, or the
// snapshotter reads it before any reader.
func TestPurgeForgetsRevisions(t *testing.T) {
	st := &story{t: t, records: longDocument(t, 300)}
	st.write(recipe, "x", events.DocMeta{Title: "a secret"}.String())
	for range 300 {
		st.write(recipe, "x")
	}
	store := new(snapshot.Mem)
	firstRevisions(t, &projector.Loader{Source: st.records, Snapshots: store}, 0)
	if n := len(chunksOf(t, store)); n != 2 {
		t.Fatalf("got %d chunks, want 2", n)
	}
	st.add(recipe, &events.DocumentDeleted{Reason: events.ReasonPurged})
	for range 300 {
		st.write(recipe, "y")
	}
	for _, store := range []*snapshot.Mem{store, new(snapshot.Mem)} {
		l := &projector.Loader{Source: st.records, Snapshots: store}
		if got := firstRevisions(t, l, 0); len(got) != 301 || got[300] != 602 {
			t.Errorf("got %d revisions, want 301 from 602 on", len(got))
		}
		list := chunksOf(t, store)
		if len(list) != 1 || list[0].Offset != 602+255 {
			t.Errorf("stored chunks: got %v, want the one after the purge", list)
		}
		for _, m := range list {
			if s, err := store.Get(t.Context(), m); err != nil || bytes.Contains(s.Data, []byte("secret")) {
				t.Errorf("chunk %q, %v has purged content", s.Data, err)
			}
		}
	}
}
