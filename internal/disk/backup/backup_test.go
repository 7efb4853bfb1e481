package backup_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallylog/tally/internal/disk/backup"
	"github.com/tallylog/tally/internal/disk/durable"
)

// tree is a directory to back up: file names and contents.
type tree map[string]string

// at is the time of the backups, unless a test says otherwise.
var at = time.Date(2026, 11, 22, 15, 2, 27, 123456789, time.UTC)

// write makes files below a directory.
func (tr tree) write(t *testing.T, dir string) {
	t.Helper()
	for name, text := range tr {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

// sources returns the files to back up.
func (tr tree) sources(dir string) (list []backup.Source) {
	for _, name := range slices.Sorted(maps.Keys(tr)) {
		list = append(list, backup.Source{Name: name, Path: filepath.Join(dir, filepath.FromSlash(name)), Size: int64(len(tr[name]))})
	}
	return list
}

// read reads all files below a directory.
func read(t *testing.T, dir string) tree {
	t.Helper()
	tr := make(tree)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		rel, _ := filepath.Rel(dir, path)
		tr[filepath.ToSlash(rel)] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func quiet(int64, int64) {}

// take copies files into a folder.
func take(ctx context.Context, dir string, sources []backup.Source) (m backup.Manifest, err error) {
	w, err := backup.Open(dir)
	if err != nil {
		return m, err
	}
	m, err = w.Take(ctx, backup.Manifest{Time: at, Source: "/store", Log: "one"}, sources, quiet)
	return m, errors.Join(err, w.Close())
}

func mustTake(t *testing.T, dir string, sources []backup.Source) backup.Manifest {
	t.Helper()
	m, err := take(t.Context(), dir, sources)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func mustList(t *testing.T, dir string) []backup.Backup {
	t.Helper()
	list, err := backup.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func accept(string) error { return nil }

// mustRestore restores the backup whose name begins with name, and checks the restored files.
func mustRestore(t *testing.T, dir, name string, want tree) {
	t.Helper()
	m, err := backup.Find(mustList(t, dir), name)
	if err != nil {
		t.Fatal(err)
	}
	target := filepath.Join(t.TempDir(), "new")
	if err := m.Restore(t.Context(), dir, target, accept, quiet); err != nil {
		t.Fatal(err)
	}
	if got := read(t, target); !maps.Equal(got, want) {
		t.Fatalf("the restored files are %v, want %v", got, want)
	}
}

func mustVerify(t *testing.T, dir string) backup.Verified {
	t.Helper()
	v, err := backup.Verify(t.Context(), dir, quiet)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// A restore returns the files as they were backed up. Of a file that grew, only the new part is copied again. Older
// backups do not change.
func TestTake(t *testing.T) {
	dir, from := filepath.Join(t.TempDir(), "a", "b"), t.TempDir()
	first := tree{"one/two/full.blk": "never changes", "one/two/growing.blk": "12345", "mark": "old", "empty": ""}
	first.write(t, from)
	before := mustTake(t, dir, first.sources(from))
	if want := int64(len("never changes" + "12345" + "old")); before.Bytes != want || before.NewBytes != want {
		t.Errorf("the first backup has %d bytes, %d new, want %d", before.Bytes, before.NewBytes, want)
	}
	second := maps.Clone(first)
	second["one/two/growing.blk"], second["mark"], second["one/new.blk"] = "1234567", "newer", "never changes"
	second.write(t, from)
	sources := append(second.sources(from), backup.Source{Name: "text", Size: 4, Text: []byte("made")})
	after := mustTake(t, dir, sources)
	if want := int64(len("67" + "newer" + "made")); after.NewBytes != want {
		t.Errorf("the second backup has %d new bytes, want %d", after.NewBytes, want)
	}
	second["text"] = "made"
	mustRestore(t, dir, before.Name, first)
	mustRestore(t, dir, "", second)
	if v := mustVerify(t, dir); v.Backups != 2 || len(v.Findings)+len(v.Unread) > 0 || v.Unused > 0 || v.Bytes != before.NewBytes+after.NewBytes {
		t.Errorf("the verification reports %+v", v)
	}
}

// Only the beginning of a file may be part of a backup.
func TestTakeTheBeginning(t *testing.T) {
	dir, from := filepath.Join(t.TempDir(), "b"), t.TempDir()
	tree{"f": "durable, and not"}.write(t, from)
	for _, size := range []int{7, 0, 9} {
		mustTake(t, dir, []backup.Source{{Name: "f", Path: filepath.Join(from, "f"), Size: int64(size)}})
		mustRestore(t, dir, "", tree{"f": "durable, and not"[:size]})
	}
	_, err := take(t.Context(), dir, []backup.Source{{Name: "f", Path: filepath.Join(from, "f"), Size: 17}})
	if err == nil || !strings.Contains(err.Error(), "1 bytes are missing") {
		t.Errorf("a backup of a file that became shorter: %v", err)
	}
	if n := len(mustList(t, dir)); n != 3 {
		t.Errorf("got %d backups", n)
	}
	mustTake(t, dir, []backup.Source{{Name: "f", Path: filepath.Join(from, "f"), Size: 17, Optional: true},
		{Name: "gone", Path: filepath.Join(from, "gone"), Size: 1, Optional: true},
		{Name: "g", Path: filepath.Join(from, "f"), Size: 7, Optional: true}})
	mustRestore(t, dir, "", tree{"g": "durable"})
}

// An unchanged file is not read again, however large it is; a file that was changed in place is, even if its size is
// the same.
func TestStamps(t *testing.T) {
	dir, from := filepath.Join(t.TempDir(), "b"), t.TempDir()
	files := tree{"f": "first", "g": "other"}
	files.write(t, from)
	if m := mustTake(t, dir, files.sources(from)); m.Files[0].Stamp != (backup.Stamp{}) {
		t.Errorf("a file that was changed just now has the stamp %v, want none: it can change again with the same time", m.Files[0].Stamp)
	}
	files["f"] = "again"
	files.write(t, from)
	mustTake(t, dir, files.sources(from))
	mustRestore(t, dir, "", files)

	backup.SetSettled(t, -time.Hour)
	mustTake(t, dir, files.sources(from))
	over, stop := context.WithCancel(t.Context())
	stop() // every reader stops at its next byte
	if _, err := take(over, dir, files.sources(from)); err != nil {
		t.Errorf("an unchanged file was read: %v", err)
	}
	if err := os.Rename(filepath.Join(from, "f"), filepath.Join(from, "h")); err != nil {
		t.Fatal(err)
	}
	files.write(t, from) // another file, with the same content
	if _, err := take(over, dir, files.sources(from)); !errors.Is(err, context.Canceled) {
		t.Errorf("a replaced file was not read: %v", err)
	}
}

// A file that grows with each backup consists of at most MaxParts parts.
func TestParts(t *testing.T) {
	dir, from := filepath.Join(t.TempDir(), "b"), t.TempDir()
	w, err := backup.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	files, most := tree{"f": ""}, 0
	for range backup.MaxParts + 10 {
		files["f"] += "x"
		files.write(t, from)
		m, err := w.Take(t.Context(), backup.Manifest{Time: at}, files.sources(from), quiet)
		if err != nil {
			t.Fatal(err)
		}
		most = max(most, len(m.Files[0].Parts))
	}
	if most != backup.MaxParts {
		t.Errorf("a file has %d parts, want at most %d", most, backup.MaxParts)
	}
	mustRestore(t, dir, "", files)
}

// The newest backup has the last name, whatever the clock says.
func TestClockThatGoesBack(t *testing.T) {
	w, err := backup.Open(filepath.Join(t.TempDir(), "b"))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	var names []string
	for _, when := range []time.Time{at, at, at.Add(-time.Hour), at.Add(time.Second)} {
		m, err := w.Take(t.Context(), backup.Manifest{Time: when}, nil, quiet)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, m.Name)
	}
	want := []string{"20261122T150227.123Z", "20261122T150227.124Z", "20261122T150227.125Z", "20261122T150228.123Z"}
	if !slices.Equal(names, want) {
		t.Errorf("names %v, want %v", names, want)
	}
}

// Find accepts a name, or a prefix that only one name has.
func TestFind(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "b")
	mustTake(t, dir, nil)
	mustTake(t, dir, nil)
	list := mustList(t, dir)
	if m, err := backup.Find(list, "20261122T150227.123"); err != nil || m.Name != "20261122T150227.123Z" {
		t.Errorf("Find returned %v, error %v", m.Name, err)
	}
	if _, err := backup.Find(list, "2026"); !is[*backup.AmbiguousError](err) {
		t.Errorf("a prefix of two names: %v", err)
	}
	if _, err := backup.Find(list, "2027"); !errors.Is(err, backup.ErrNoBackup) {
		t.Errorf("a prefix of no name: %v", err)
	}
	if _, err := backup.Find(nil, ""); !errors.Is(err, backup.ErrNoBackup) {
		t.Errorf("Find without a backup: %v", err)
	}
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// Keep removes older backups, and the contents that only they had.
func TestKeep(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "b")
	w, err := backup.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	source := func(text string) backup.Source {
		return backup.Source{Name: text, Size: int64(len(text)), Text: []byte(text)}
	}
	for i := range 5 {
		if _, err := w.Take(t.Context(), backup.Manifest{Time: at}, []backup.Source{source("all"), source(fmt.Sprint("only ", i))}, quiet); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		n    int
		want backup.Kept
	}{{9, backup.Kept{}}, {5, backup.Kept{}}, {4, backup.Kept{Backups: 1, Bytes: 6}}, {2, backup.Kept{Backups: 2, Bytes: 12}}, {2, backup.Kept{}}} {
		if k, err := w.Keep(c.n); err != nil || k != c.want {
			t.Errorf("keep %d: %+v, %v, want %+v", c.n, k, err, c.want)
		}
	}
	if _, err := w.Keep(0); err == nil {
		t.Error("Keep(0) was accepted")
	}
	v := mustVerify(t, dir)
	if v.Backups != 2 || v.Objects != 3 || len(v.Findings) > 0 || v.Unused > 0 {
		t.Errorf("the verification reports %+v", v)
	}
	mustRestore(t, dir, "", tree{"all": "all", "only 4": "only 4"})
}

// Verify does not report a backup that is removed while Verify runs as missing, and accepts contents that a backup adds
// meanwhile.
func TestVerifyBesideKeep(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "b")
	mustTake(t, dir, []backup.Source{{Name: "f", Size: 3, Text: []byte("one")}, {Name: "g", Size: 3, Text: []byte("two")}})
	mustTake(t, dir, []backup.Source{{Name: "f", Size: 5, Text: []byte("three")}})
	begun := false
	v, err := backup.Verify(t.Context(), dir, func(int64, int64) {
		if begun {
			return
		}
		begun = true
		mustTake(t, dir, []backup.Source{{Name: "f", Size: 4, Text: []byte("four")}})
		w, err := backup.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		if k, err := w.Keep(2); err != nil || k.Backups != 1 || k.Bytes != 6 {
			t.Fatalf("Keep removed %+v, error %v", k, err)
		}
	})
	if err != nil || len(v.Findings) > 0 || v.Unused > 0 {
		t.Errorf("the verification reports %+v, error %v", v, err)
	}
}

// Before a manifest is written, the names of all contents that it needs are synced, including those that a killed
// process left unsynced.
func TestNamesAreSyncedBeforeTheManifest(t *testing.T) {
	dir, from := filepath.Join(t.TempDir(), "b"), t.TempDir()
	files := tree{"f": "one", "g": "another", "h": "a third"}
	files.write(t, from)
	mustTake(t, dir, files.sources(from))
	if err := os.Remove(filepath.Join(dir, "backups", mustList(t, dir)[0].File)); err != nil {
		t.Fatal(err)
	}
	files["f"] = "new"
	files.write(t, from)
	synced := make(map[string]bool)
	stop := durable.Watch(func(path string) {
		if strings.HasPrefix(path, filepath.Join(dir, "backups")+string(filepath.Separator)) {
			path = "the manifest" // the folders must be synced before it
		}
		if !synced["the manifest"] {
			synced[filepath.Clean(path)] = true
		}
	})
	m := mustTake(t, dir, files.sources(from))
	stop()
	if !synced["the manifest"] || !synced[filepath.Join(dir, "objects")] {
		t.Errorf("the synced folders are %v", synced)
	}
	for _, f := range m.Files {
		if folder := filepath.Dir(backup.ObjectPath(dir, f.Parts[0])); !synced[folder] {
			t.Errorf("%s was not synced before the manifest", folder)
		}
	}
}
