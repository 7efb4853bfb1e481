package projector_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/snapshot"
)

// rebuilt returns a loader of tale with fresh snapshots.
func rebuilt(t *testing.T) (*projector.Loader, *snapshot.Files) {
	t.Helper()
	files := snapshot.NewFiles(filepath.Join(t.TempDir(), "snapshots"))
	l := (&projector.Loader{Source: tale(t), Snapshots: files}).SetChunks(4, 2)
	if n, err := l.Rebuild(t.Context(), projector.Policy{Records: 1}, nil); err != nil || n != 2 {
		t.Fatalf("rebuild: got %d, %v, want 2", n, err)
	}
	return l, files
}

func mustVerify(t *testing.T, l *projector.Loader) projector.Verified {
	t.Helper()
	v, err := l.Verify(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestVerifyAfterRebuild(t *testing.T) {
	l, _ := rebuilt(t)
	if v := mustVerify(t, l); v.Records != 7 || v.Sessions != 2 || v.Snapshots != 2 || len(v.Findings) > 0 {
		t.Errorf("verify: got %+v, want 7 records, 2 sessions, 2 snapshots and no findings", v)
	}
}

// Verify finds and distinguishes each kind of damage to snapshots, and a rebuild repairs it.
func TestVerifyFindsAndRebuildMends(t *testing.T) {
	put := func(t *testing.T, files *snapshot.Files, sub events.Subject, change func(*snapshot.Snapshot)) {
		t.Helper()
		list := snapshotsIn(t, files, sub)
		snap, err := files.Get(t.Context(), list[len(list)-1])
		if err != nil {
			t.Fatal(err)
		}
		change(&snap)
		if err := files.Put(t.Context(), snap); err != nil {
			t.Fatal(err)
		}
	}
	chunk := func(files *snapshot.Files) string {
		return snapshotPath(files, projector.ChunkFold, 5)
	}
	path := func(files *snapshot.Files) string {
		return snapshotPath(files, projector.SessionFold, 7)
	}
	edit := func(t *testing.T, path string, change func([]byte) []byte) {
		t.Helper()
		data, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(path, change(data), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		change func(*testing.T, *snapshot.Files)
		want   string // "": nothing to find
	}{
		"a byte": {func(t *testing.T, f *snapshot.Files) {
			edit(t, path(f), func(b []byte) []byte { b[len(b)-9] ^= 1; return b })
		}, "hash"},
		"cut off": {func(t *testing.T, f *snapshot.Files) {
			edit(t, path(f), func(b []byte) []byte { return b[:20] })
		}, "header"},
		"altered, with a right hash": {func(t *testing.T, f *snapshot.Files) {
			put(t, f, s1, func(s *snapshot.Snapshot) { s.Data = bytes.Replace(s.Data, []byte(`"four"`), []byte(`"five"`), 1) })
		}, "five"},
		"a byte of a chunk": {func(t *testing.T, f *snapshot.Files) {
			edit(t, chunk(f), func(b []byte) []byte { b[len(b)-9] ^= 1; return b })
		}, "hash"},
		"a chunk cut off": {func(t *testing.T, f *snapshot.Files) {
			edit(t, chunk(f), func(b []byte) []byte { return b[:20] })
		}, "header"},
		"a chunk missing": {func(t *testing.T, f *snapshot.Files) {
			if err := os.Remove(chunk(f)); err != nil {
				t.Fatal(err)
			}
		}, "chunk of the snapshots is missing"},
		"a chunk altered, with a right hash": {func(t *testing.T, f *snapshot.Files) {
			list, err := f.List(t.Context(), s1, projector.ChunkFold)
			if err != nil || len(list) != 1 {
				t.Fatalf("snapshots: got %v, %v, want 1", list, err)
			}
			s, err := f.Get(t.Context(), list[0])
			if err != nil {
				t.Fatal(err)
			}
			s.Data = bytes.Replace(s.Data, []byte(`"two"`), []byte(`"owt"`), 1)
			if err := f.Put(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}, `owt`},
		"a chunk that no head refers to, damaged": {func(t *testing.T, f *snapshot.Files) {
			m := snapshot.Meta{Subject: s1, Fold: projector.ChunkFold, Version: projector.SessionFoldVersion, Offset: 4}
			if err := f.Put(t.Context(), snapshot.Snapshot{Meta: m, Data: []byte("{}")}); err != nil {
				t.Fatal(err)
			}
			edit(t, snapshotPath(f, projector.ChunkFold, 4), func(b []byte) []byte { b[len(b)-1] ^= 1; return b })
		}, "hash"},
		"live list": {func(t *testing.T, f *snapshot.Files) {
			put(t, f, s1, func(s *snapshot.Snapshot) { s.Live = s.Live[:1] })
		}, "live list"},
		"another event": {func(t *testing.T, f *snapshot.Files) {
			put(t, f, s1, func(s *snapshot.Snapshot) { s.EventID = "another" })
		}, `"another"`},
		"of a session that is not there": {func(t *testing.T, f *snapshot.Files) {
			put(t, f, s1, func(s *snapshot.Snapshot) { s.Subject = events.Session("", "nobody") })
		}, "not found"},
		"at an offset that is not there": {func(t *testing.T, f *snapshot.Files) {
			put(t, f, s1, func(s *snapshot.Snapshot) { s.Offset = 99 })
		}, "@99"},
		"copied elsewhere": {func(t *testing.T, f *snapshot.Files) {
			data, err := os.ReadFile(path(f))
			if err == nil {
				err = os.WriteFile(path(f)+"0", data, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}, "another place"},
		"of an older fold": {func(t *testing.T, f *snapshot.Files) {
			put(t, f, s1, func(s *snapshot.Snapshot) { s.Version = 0; s.Data = nil })
		}, ""},
		"missing": {func(t *testing.T, f *snapshot.Files) {
			if err := os.RemoveAll(f.Dir()); err != nil {
				t.Fatal(err)
			}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			l, files := rebuilt(t)
			c.change(t, files)
			v := mustVerify(t, l)
			if c.want == "" && len(v.Findings) > 0 || c.want != "" && (len(v.Findings) != 1 || !strings.Contains(v.Findings[0].What, c.want)) {
				t.Errorf("got findings %+v, want one about %q", v.Findings, c.want)
			}
			if n, err := l.Rebuild(t.Context(), projector.Policy{Records: 1}, nil); err != nil || n != 2 {
				t.Fatalf("rebuild: got %d, %v, want 2", n, err)
			}
			if v := mustVerify(t, l); v.Snapshots != 2 || len(v.Findings) > 0 {
				t.Errorf("verify after the rebuild: got %+v, want 2 snapshots and no findings", v)
			}
		})
	}
}

// Verify finds damage of the log and of referenced blobs. It writes nothing.
func TestVerifyFindsDamage(t *testing.T) {
	st := &story{t: t, records: tale(t)}
	st.event(events.Event{Source: "urn:test", Type: events.TypeTurnAppended, Subject: s2}.WithExtension(events.ExtDataRef, events.BlobRef(sumOf("gone"))))
	store := &counted{}
	told := 0
	l := &projector.Loader{Source: damaged{st.records, []events.Offset{2}}, Snapshots: store}
	v, err := l.Verify(t.Context(), func(n int) { told = n })
	if err != nil || v.Records != 8 || told != 8 || len(v.Findings) != 2 || v.Findings[0].Offset != 2 || v.Findings[1].Offset != 8 || v.Findings[1].Subject != "session/s2" {
		t.Errorf("verify: got %+v, %v, want findings at @2 and @8", v, err)
	}
	if store.puts != 0 {
		t.Error("verify stored a snapshot")
	}
	if v, err := (&projector.Loader{Source: st.records}).Verify(t.Context(), nil); err != nil || len(v.Findings) != 1 || v.Snapshots != 0 {
		t.Errorf("verify without snapshots: got %+v, %v, want 1 finding", v, err)
	}
}

// A rebuild removes snapshots that the policy would not write, and damaged ones.
func TestRebuildFollowsPolicy(t *testing.T) {
	l, files := rebuilt(t)
	if n, err := l.Rebuild(t.Context(), projector.Policy{Records: 2}, nil); err != nil || n != 1 {
		t.Fatalf("rebuild: got %d, %v, want 1", n, err)
	}
	if a, b := snapshotOffsets(t, files, s1), snapshotOffsets(t, files, s2); !slices.Equal(a, []int{7}) || len(b) > 0 {
		t.Errorf("snapshots: got %v of s1 and %v of s2, want [7] and none", a, b)
	}
	l.Source = damaged{tale(t), []events.Offset{2}}
	if n, err := l.Rebuild(t.Context(), projector.Policy{Records: 1}, nil); err != nil || n != 1 {
		t.Errorf("rebuild: got %d, %v, want 1", n, err)
	}
	if v := mustVerify(t, l); v.Snapshots != 1 || len(v.Findings) != 1 || v.Findings[0].Offset != 2 {
		t.Errorf("verify: got %+v, want 1 snapshot and a finding at @2", v)
	}
	if n, err := l.Rebuild(t.Context(), projector.Policy{Records: -1}, nil); err != nil || n != 0 || len(snapshotOffsets(t, files, s2)) > 0 {
		t.Errorf("rebuild with a negative policy: got %d, %v, want 0", n, err)
	}
}

func TestVerifyStops(t *testing.T) {
	l, _ := rebuilt(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Verify(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("verify: got %v, want Canceled", err)
	}
	if _, err := l.Rebuild(ctx, projector.Policy{}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("rebuild: got %v, want Canceled", err)
	}
}
