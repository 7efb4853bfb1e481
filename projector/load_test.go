package projector_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/snapshot"
)

// tale returns a session with a rewind behind some turns, and another session.
func tale(t testing.TB) testkit.Records {
	st := &story{t: t}
	st.add(s1, created())
	st.add(s1, aTurn("one"))
	st.add(s2, aTurn("other"))
	st.add(s1, aTurn("two"))
	st.add(s1, aTurn("three"))
	st.add(s1, &events.SessionRewound{To: 4})
	st.add(s1, aTurn("four"))
	return st.records
}

// Each reason to distrust a snapshot: the load removes it with one warning, and returns the right result.
func TestSnapshotDiscarded(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*snapshot.Snapshot)
		records func(testkit.Records) testkit.Records
		reason  string
	}{
		"fold version":    {change: func(s *snapshot.Snapshot) { s.Version++ }, reason: "version"},
		"another event":   {change: func(s *snapshot.Snapshot) { s.EventID = "event-9" }, reason: "event-9"},
		"another's event": {change: func(s *snapshot.Snapshot) { s.Offset, s.EventID = 3, "event-3" }, reason: "session s2"},
		"event missing":   {change: func(s *snapshot.Snapshot) { s.Offset = 99 }, reason: "no record @99"},
		"live list":       {change: func(s *snapshot.Snapshot) { s.Live = []snapshot.Interval{{From: 1, To: 4}} }, reason: "live list"},
		"offset":          {change: func(s *snapshot.Snapshot) { s.Offset, s.EventID = 4, "event-4" }, reason: "offset"},
		"subject":         {change: func(s *snapshot.Snapshot) { s.Data = bytes.Replace(s.Data, []byte(s1.NATS()), []byte(s2.NATS()), 1) }, reason: "subject"},
		"cut off":         {change: func(s *snapshot.Snapshot) { s.Data = s.Data[:len(s.Data)/2] }, reason: "decode"},
		"empty":           {change: func(s *snapshot.Snapshot) { s.Data = nil }, reason: "decode"},
		"another log": {records: func(r testkit.Records) testkit.Records {
			r = slices.Clone(r)
			for i := range r {
				r[i].ID = "other-" + r[i].ID
			}
			return r
		}, reason: "other-event-5"},
		"record damaged": {reason: "no record @5", records: func(r testkit.Records) testkit.Records { return append(slices.Clone(r[:4]), r[5:]...) }},
	} {
		t.Run(name, func(t *testing.T) {
			log := tale(t)
			store, w := &snapshot.Mem{}, &warnings{}
			snap := mustHead(t, log, store, s1, 5)
			if c.change != nil {
				c.change(&snap)
			}
			if err := store.Put(t.Context(), snap); err != nil {
				t.Fatal(err)
			}
			if c.records != nil {
				log = c.records(log)
			}
			l := &projector.Loader{Source: log, Snapshots: store, Logger: w.logger()}
			at := events.Offset(0)
			if snap.Offset == 5 || snap.Offset == 4 {
				at = 5 // a later rewind would make the snapshot unusable anyway
			}
			if name == "record damaged" {
				at = 0
			}
			for range 2 { // the second load logs nothing
				want := mustSession(t, &projector.Loader{Source: log}, s1, at)
				if got := mustSession(t, l, s1, at); !bytes.Equal(encoded(t, got), encoded(t, want)) {
					t.Errorf("got session\n%s\nwant\n%s", encoded(t, got), encoded(t, want))
				}
			}
			if list := w.all(); len(list) != 1 || !strings.Contains(list[0], "snapshot discarded") || !strings.Contains(list[0], c.reason) {
				t.Errorf("got warnings %q, want one about %q", list, c.reason)
			}
			if left := snapshotOffsets(t, store, s1); len(left) > 0 {
				t.Errorf("snapshots %v are left, want none", left)
			}
		})
	}
}

func encoded(t *testing.T, s *projector.Session) []byte {
	t.Helper()
	data, err := s.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// snapshotPath returns the path of a snapshot of s1 or of a part of it.
func snapshotPath(files *snapshot.Files, fold string, at events.Offset) string {
	return filepath.Join(files.Dir(), "default", "session", "s1", fmt.Sprintf("%s.%d.%s", fold, projector.SessionFoldVersion, at.Padded()))
}

// The hash detects a changed byte in a file.
func TestSnapshotFileChanged(t *testing.T) {
	log, w := tale(t), &warnings{}
	files := snapshot.NewFiles(t.TempDir())
	if err := files.Put(t.Context(), mustHead(t, log, files, s1, 5)); err != nil {
		t.Fatal(err)
	}
	path := snapshotPath(files, projector.SessionFold, 5)
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	content[len(content)-9] ^= 1
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	l := &projector.Loader{Source: log, Snapshots: files, Logger: w.logger()}
	want := mustSession(t, &projector.Loader{Source: log}, s1, 0)
	if got := mustSession(t, l, s1, 0); !bytes.Equal(encoded(t, got), encoded(t, want)) {
		t.Error("the session differs from one loaded without snapshots")
	}
	if list := w.all(); len(list) != 1 || !strings.Contains(list[0], "hash") {
		t.Errorf("got warnings %q, want one about the hash", list)
	}
	if left := snapshotOffsets(t, files, s1); len(left) > 0 {
		t.Errorf("snapshots %v are left, want none", left)
	}
}

// Of several snapshots the newest sound one is used, and the others remain.
func TestSnapshotNextBest(t *testing.T) {
	log, w, store := tale(t), &warnings{}, &snapshot.Mem{}
	var heads []snapshot.Snapshot
	for _, at := range []events.Offset{2, 4, 5, 7} {
		heads = append(heads, mustHead(t, log, store, s1, at))
	}
	for _, snap := range heads {
		if snap.Offset >= 5 {
			snap.EventID = "wrong"
		}
		if err := store.Put(t.Context(), snap); err != nil {
			t.Fatal(err)
		}
	}
	l := &projector.Loader{Source: log, Snapshots: store, Logger: w.logger()}
	s := mustSession(t, l, s1, 0)
	if turns := s.Threads.Turns("main"); len(turns) != 3 || string(turns[2].Raw) != `"four"` {
		t.Errorf("got turns %v, want 3 up to four", turns)
	}
	if left := snapshotOffsets(t, store, s1); !slices.Equal(left, []int{2, 4}) || len(w.all()) != 2 {
		t.Errorf("snapshots %v are left with warnings %q, want @2 and @4 with 2 warnings", left, w.all())
	}
}

// A head whose parts have non-consecutive turns is refused.
func TestHeadThatDoesNotAddUp(t *testing.T) {
	l := (&projector.Loader{Source: tale(t), Snapshots: &snapshot.Mem{}}).SetChunks(2, 2)
	head, err := l.Head(t.Context(), s1, 5, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.DecodeHead(head.Data); err != nil {
		t.Fatal(err)
	}
	const turns = `"turns":{"main":[0,3]}`
	if !bytes.Contains(head.Data, []byte(turns)) {
		t.Fatalf("head %s has no %s", head.Data, turns)
	}
	for _, other := range []string{"[1,3]", "[0,-1]", "[0,2]", "[-1,4]", "[3,9223372036854775807]"} {
		data := bytes.Replace(head.Data, []byte(turns), []byte(`"turns":{"main":`+other+`}`), 1)
		if _, err := l.DecodeHead(data); err == nil {
			t.Errorf("head %s was decoded", data)
		}
	}
}

// Decoding any bytes returns a usable head or an error.
func FuzzDecodeHead(f *testing.F) {
	log := tale(f)
	for at := range events.Offset(7) {
		snap, err := (&projector.Loader{Source: log, Snapshots: &snapshot.Mem{}}).SetChunks(2, 2).Head(f.Context(), s1, at+1, "")
		if err == nil {
			f.Add(snap.Data)
		}
	}
	l := &projector.Loader{Source: log}
	f.Fuzz(func(t *testing.T, data []byte) {
		again, err := l.DecodeHead(data)
		if err != nil {
			return
		}
		for i, p := range []events.Payload{aTurn("more"), &events.SessionRewound{To: 2}} {
			e, err := events.New("urn:test", s1, p)
			if err != nil {
				t.Fatal(err)
			}
			more, err := again(events.Record{Event: e, Offset: 1<<52 + events.Offset(i)})
			if err != nil {
				return // its parts are missing
			}
			if _, err := l.DecodeHead(more); err != nil {
				t.Fatalf("%s\nwas decoded, and encoded again as\n%s\nwhich was not: %v", data, more, err)
			}
		}
	})
}

// Unreadable records are named, the load continues, and no snapshot hides them.
func TestDamagedRecords(t *testing.T) {
	log := damaged{tale(t), []events.Offset{2, 3, 7}}
	s := mustSession(t, &projector.Loader{Source: log}, s1, 0)
	if !slices.Equal(s.Damaged, []events.Offset{2, 7}) {
		t.Errorf("got damaged %v, want @2 and @7", s.Damaged)
	}
	if turns := s.Threads.Turns("main"); len(turns) != 1 || string(turns[0].Raw) != `"two"` {
		t.Errorf("got turns %v, want two", turns)
	}
	if _, err := (&projector.Loader{Source: log, Snapshots: &snapshot.Mem{}}).Keep(t.Context(), s1, 0, ""); err == nil {
		t.Error("Keep stored a snapshot of a damaged session")
	}
	if s := mustSession(t, &projector.Loader{Source: log}, s1, 2); !slices.Equal(s.Damaged, []events.Offset{2}) || s.Offset() != 1 {
		t.Errorf("at @2: got damaged %v, offset %v, want @2 and 1", s.Damaged, s.Offset())
	}
}

// The error of damaged records names the session, or the view that does not show them.
func TestHoleErrorNames(t *testing.T) {
	for want, err := range map[string]error{
		"session s1: damaged record @7":                   projector.HoleOf(s1, []events.Offset{7}),
		"view catalog: 2 records cannot be read: [@2 @7]": projector.HoleOf(events.Subject{Kind: projector.KindView, ID: "catalog"}, []events.Offset{7, 2}),
	} {
		if err.Error() != want {
			t.Errorf("got %q, want %q", err, want)
		}
	}
}

// A session without readable records exists, and has no positions.
func TestAllDamaged(t *testing.T) {
	log := damaged{tale(t), []events.Offset{3}}
	l := &projector.Loader{Source: log}
	s := mustSession(t, l, s2, 0)
	if s.Offset() != 0 || len(s.Damaged) != 1 {
		t.Errorf("got offset %v, damaged %v, want 0 and 1 record", s.Offset(), s.Damaged)
	}
	for _, text := range []string{"@3", "#1", "~1", "2026-01-01", "-1m", "e:event-3"} {
		if _, err := resolve(t.Context(), l, s, text); !errors.Is(err, projector.ErrNotFound) {
			t.Errorf("%s: got %v, want ErrNotFound", text, err)
		}
	}
	o, err := l.Outline(t.Context(), s2, 0)
	if projector.Tolerate(err) != nil {
		t.Fatal(err)
	}
	if _, err := o.Rewind(t.Context(), 3, ""); !errors.Is(err, projector.ErrNotFound) {
		t.Errorf("rewind: got %v, want ErrNotFound", err)
	}
}

// The fork of a session with a damaged record names that record too.
func TestForkOfDamaged(t *testing.T) {
	st := &story{t: t, records: tale(t)}
	fork := events.Session("", "fork")
	st.add(fork, &events.SessionCreated{Kind: "conversation", CreatedAt: "2026-01-01T00:00:00Z", Fork: &events.Fork{Session: "s1", Offset: 5}})
	s := mustSession(t, &projector.Loader{Source: damaged{st.records, []events.Offset{4}}}, fork, 0)
	if !slices.Equal(s.Damaged, []events.Offset{4}) || len(s.Threads.Turns("main")) != 2 {
		t.Errorf("got damaged %v, turns %v, want @4 and 2 turns", s.Damaged, s.Threads.Turns("main"))
	}
}

// The first load of a fork stores a snapshot, which refers to its parent's chunks. The second load stores nothing, and
// a read-only loader never does.
func TestForkIsKeptWhenFirstLoaded(t *testing.T) {
	st := &story{t: t, records: tale(t)}
	fork := events.Session("", "fork")
	st.add(fork, &events.SessionCreated{Kind: "conversation", CreatedAt: "2026-01-01T00:00:00Z", Fork: &events.Fork{Session: "s1", Offset: 5}})
	st.add(fork, aTurn("more"))
	store := &counted{}
	load := func(readOnly bool) *projector.Session {
		return mustSession(t, (&projector.Loader{Source: st.records, Snapshots: store, ReadOnly: readOnly}).SetChunks(2, 2), fork, 0)
	}
	if load(true); store.puts > 0 {
		t.Errorf("a read-only loader stored %d parts", store.puts)
	}
	load(false)
	if got := snapshotOffsets(t, store, fork); !slices.Equal(got, []int{9}) {
		t.Errorf("snapshots after the first load: got %v, want @9", got)
	}
	puts := store.puts
	st.records = st.records[len(st.records)-2:] // the snapshot covers the rest
	if s := load(false); store.puts != puts || len(s.Threads.Turns("main")) != 4 {
		t.Errorf("the second load stored %d parts and has turns %v, want 0 and 4 turns", store.puts-puts, s.Threads.Turns("main"))
	}
}

// A damaged or missing chunk is removed with one warning and rebuilt. The load returns the right result, and the next
// load logs nothing. An index cannot be rebuilt, so the heads that refer to it are removed too.
func TestChunkDiscarded(t *testing.T) {
	st := &story{t: t}
	for i := range 20 {
		st.add(s1, aTurn(fmt.Sprint("turn ", i)))
	}
	log := st.records
	edit := func(change func([]byte) []byte) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			data, err := os.ReadFile(path)
			if err == nil {
				err = os.WriteFile(path, change(data), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	changes := map[string]func(*testing.T, string){
		"a byte":  edit(func(b []byte) []byte { b[len(b)-9] ^= 1; return b }),
		"cut off": edit(func(b []byte) []byte { return b[:len(b)/2] }),
		"empty":   edit(func([]byte) []byte { return nil }),
		"missing": func(t *testing.T, path string) {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		},
	}
	for what, change := range changes {
		for name, c := range map[string]struct {
			fold string
			at   events.Offset
			left []int
		}{"chunk": {"chunk", 18, []int{20}}, "index": {"index2", 8, []int{}}} {
			t.Run(name+"/"+what, func(t *testing.T) {
				files, w := snapshot.NewFiles(t.TempDir()), &warnings{}
				loader := func() *projector.Loader {
					return (&projector.Loader{Source: log, Snapshots: files, Logger: w.logger()}).SetChunks(2, 2)
				}
				if _, err := loader().Keep(t.Context(), s1, 0, ""); err != nil {
					t.Fatal(err)
				}
				path := snapshotPath(files, c.fold, c.at)
				before, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				change(t, path)
				want := mustSession(t, &projector.Loader{Source: log}, s1, 0)
				for range 2 {
					if got := mustSession(t, loader(), s1, 0); !bytes.Equal(encoded(t, got), encoded(t, want)) {
						t.Error("the session differs from one loaded without snapshots")
					}
				}
				if list := w.all(); len(list) != 1 || !strings.Contains(list[0], "discarded") {
					t.Errorf("got warnings %q, want one about the discarded part", list)
				}
				if left := snapshotOffsets(t, files, s1); !slices.Equal(left, c.left) {
					t.Errorf("got heads %v, want %v", left, c.left)
				}
				after, _ := os.ReadFile(path)
				if same := bytes.Equal(before, after); same != (name == "chunk") {
					t.Errorf("the %s was restored: %v", name, same)
				}
			})
		}
	}
}

// Removing a head of another version also removes the chunks of that version.
func TestOldChunksRemoved(t *testing.T) {
	log, store := tale(t), &snapshot.Mem{}
	if _, err := (&projector.Loader{Source: log, Snapshots: store}).SetChunks(2, 2).Keep(t.Context(), s1, 5, ""); err != nil {
		t.Fatal(err)
	}
	sound := 0
	for range store.All(t.Context()) {
		sound++
	}
	for _, fold := range []string{projector.SessionFold, projector.ChunkFold, "index1"} {
		m := snapshot.Meta{Subject: s1, Fold: fold, Version: projector.SessionFoldVersion - 1, Offset: 7}
		if err := store.Put(t.Context(), snapshot.Snapshot{Meta: m}); err != nil {
			t.Fatal(err)
		}
	}
	mustSession(t, (&projector.Loader{Source: log, Snapshots: store}).SetChunks(2, 2), s1, 0)
	left := 0
	for m := range store.All(t.Context()) {
		if left++; m.Version != projector.SessionFoldVersion {
			t.Errorf("%s of version %d is left", m.Fold, m.Version)
		}
	}
	if left != sound {
		t.Errorf("%d are left, want %d", left, sound)
	}
}
