package snapshot_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/snapshot"
)

// shelf returns a Files with two snapshots of s1 and one of s2, and the path of the newest of s1.
func shelf(t *testing.T) (st *snapshot.Files, path string) {
	t.Helper()
	st = snapshot.NewFiles(filepath.Join(t.TempDir(), "snapshots"))
	mustPut(t, st, at(s1, 7))
	mustPut(t, st, at(s1, 9))
	mustPut(t, st, at(events.Session("", "s2"), 8))
	return st, filepath.Join(st.Dir(), "default", "session", "s1", "session.1."+events.Offset(9).Padded())
}

func mustRead(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func mustWrite(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// If a file is damaged, it is reported as a *CorruptError and can be discarded, and the other files stay readable.
func TestDamagedFile(t *testing.T) {
	for name, c := range map[string]struct {
		damage func([]byte) []byte
		listed bool // the header is sound: Get finds the damage
	}{
		"a byte of the data":   {func(b []byte) []byte { b[len(b)-2] ^= 1; return b }, true},
		"data cut off":         {func(b []byte) []byte { return b[:len(b)-3] }, true},
		"data added":           {func(b []byte) []byte { return append(b, '\n') }, true},
		"header cut off":       {func(b []byte) []byte { return b[:30] }, false},
		"empty":                {func([]byte) []byte { return nil }, false},
		"foreign":              {func([]byte) []byte { return []byte("hello\nworld\n") }, false},
		"a huge foreign line":  {func([]byte) []byte { return bytes.Repeat([]byte("x"), 100_000) }, false},
		"no JSON":              {func(b []byte) []byte { return bytes.Replace(b, []byte(`"offset":9`), []byte(`"offset":\`), 1) }, false},
		"no subject":           {func(b []byte) []byte { return bytes.Replace(b, []byte("session.s1"), []byte("session.s=1"), 1) }, false},
		"another place":        {func(b []byte) []byte { return bytes.Replace(b, []byte(`"offset":9`), []byte(`"offset":7`), 1) }, false},
		"another fold version": {func(b []byte) []byte { return bytes.Replace(b, []byte(`"version":1`), []byte(`"version":2`), 1) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			st, path := shelf(t)
			mustWrite(t, path, c.damage(mustRead(t, path)))
			if listed := mustList(t, st, s1)[0].Offset == 9; listed != c.listed {
				t.Fatalf("listed: %v, want %v", listed, c.listed)
			}
			_, err := st.Get(t.Context(), at(s1, 9).Meta)
			if corrupt, ok := errors.AsType[*snapshot.CorruptError](err); !ok || corrupt.Name != path || corrupt.Reason == "" {
				t.Fatalf("get: got %v, want a *CorruptError of the file", err)
			}
			metas, errs := all(t, st)
			if c.listed {
				if len(metas) != 3 || len(errs) > 0 {
					t.Fatalf("all: got %v, %v, want 3 snapshots", metas, errs)
				}
			} else if len(metas) != 2 || len(errs) != 1 {
				t.Fatalf("all: got %v, %v, want 2 snapshots and 1 error", metas, errs)
			} else if corrupt, ok := errors.AsType[*snapshot.CorruptError](errs[0]); !ok {
				t.Fatal(errs)
			} else if err := st.Discard(t.Context(), corrupt.Name); err != nil {
				t.Fatal(err)
			}
			mustPut(t, st, at(s1, 9))
			mustHold(t, st, s1, at(s1, 9), at(s1, 7))
		})
	}
}

// A temporary file of a crash is ignored. Another program's file is reported.
func TestForeignFiles(t *testing.T) {
	st, path := shelf(t)
	mustWrite(t, path+".tally-tmp-123", []byte("half"))
	if metas, errs := all(t, st); len(metas) != 3 || len(errs) > 0 {
		t.Fatalf("all with a temporary file: got %v, %v, want 3 snapshots", metas, errs)
	}
	mustWrite(t, filepath.Join(st.Dir(), "cursor"), []byte("x")) // another program's file directly in the directory
	stray := filepath.Join(st.Dir(), "default", "README")
	mustWrite(t, stray, []byte("x"))
	mustWrite(t, filepath.Join(filepath.Dir(path), "a.b.c.d"), []byte("x"))
	metas, errs := all(t, st)
	if len(metas) != 3 || len(errs) != 2 {
		t.Fatalf("all with foreign files: got %v, %v, want 3 snapshots and 2 errors", metas, errs)
	}
	mustHold(t, st, s1, at(s1, 9), at(s1, 7))
	for range 2 {
		if err := st.Discard(t.Context(), stray); err != nil {
			t.Fatal(err)
		}
	}
	for _, outside := range []string{st.Dir(), filepath.Dir(st.Dir()), filepath.Join(st.Dir(), "..", "x"), "/etc/passwd"} {
		if err := st.Discard(t.Context(), outside); err == nil {
			t.Errorf("Discard accepted %s, outside the directory", outside)
		}
	}
}

// A copy of a file under another name is not a second snapshot.
func TestCopiedFile(t *testing.T) {
	st, path := shelf(t)
	mustWrite(t, strings.TrimSuffix(path, "9")+"8", mustRead(t, path))
	mustHold(t, st, s1, at(s1, 9), at(s1, 7))
	if metas, errs := all(t, st); len(metas) != 3 || len(errs) != 1 {
		t.Fatalf("all with a copied file: got %v, %v, want 3 snapshots and 1 error", metas, errs)
	}
}

// Two subjects that share a folder keep their own: offsets are unique in a log.
func TestSharedFolder(t *testing.T) {
	st, path := shelf(t)
	other := at(events.Session("", "other"), 8)
	mustPut(t, st, other)
	from := filepath.Join(st.Dir(), "default", "session", "other", "session.1."+events.Offset(8).Padded())
	mustWrite(t, filepath.Join(filepath.Dir(path), filepath.Base(from)), mustRead(t, from))
	mustHold(t, st, s1, at(s1, 9), at(s1, 7))
}

// A folder that cannot be opened is reported, and the other snapshots are listed.
func TestUnreadable(t *testing.T) {
	st, _ := shelf(t)
	loop := filepath.Join(st.Dir(), "default", "session", "loop")
	if err := os.Symlink(loop, loop); err != nil {
		t.Fatal(err)
	}
	if _, err := st.List(t.Context(), events.Session("", "loop"), fold); err == nil {
		t.Error("List of an unreadable folder: got no error")
	}
	if metas, errs := all(t, st); len(metas) != 3 || len(errs) != 1 {
		t.Errorf("all with an unreadable folder: got %v, %v, want 3 snapshots and 1 error", metas, errs)
	}
	if _, err := st.Get(t.Context(), at(events.Session("", "loop"), 1).Meta); err == nil || errors.Is(err, snapshot.ErrNotFound) {
		t.Errorf("get from an unreadable folder: got %v, want an error other than ErrNotFound", err)
	}
	if err := st.Put(t.Context(), at(events.Session("", "loop"), 1)); err == nil {
		t.Error("put into an unreadable folder: got no error")
	}
	if err := st.Delete(t.Context(), at(events.Session("", "loop"), 1).Meta); err == nil {
		t.Error("delete from an unreadable folder: got no error")
	}
}

func TestUnreadableDirectory(t *testing.T) {
	st, path := shelf(t)
	// A link to itself is a directory that even root cannot read.
	dir := filepath.Dir(path)
	if err := errors.Join(os.RemoveAll(dir), os.Symlink(filepath.Base(dir), dir)); err != nil {
		t.Fatal(err)
	}
	if metas, errs := all(t, st); len(metas) != 1 || len(errs) != 1 {
		t.Errorf("all with an unreadable directory: got %v, %v, want 1 snapshot and 1 error", metas, errs)
	}
	if _, err := st.List(t.Context(), s1, fold); err == nil {
		t.Error("List of an unreadable directory: got no error")
	}
}

func TestAllEnds(t *testing.T) {
	st, _ := shelf(t)
	n := 0
	for range st.All(t.Context()) {
		n++
		break
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range st.All(ctx) {
		if n++; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	if n != 2 {
		t.Errorf("All yielded %d times, want 2", n)
	}
}
