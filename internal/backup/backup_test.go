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

	"github.com/tallylog/tally/internal/backup"
	"github.com/tallylog/tally/internal/durable"
)

// tree is a directory that is copied: names of files to what is in them.
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

// sources are those files as they are to be copied.
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

// mustRestore restores the backup whose name begins so, and wants it to have those files.
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
		t.Fatalf("restored are %v, want %v", got, want)
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

// What is copied is what is restored; of what grew, only the rest is copied again; and
// older backups stay as they were.
func TestTake(t *testing.T) {
	dir, from := filepath.Join(t.TempDir(), "a", "b"), t.TempDir()
	first := tree{"one/two/full.blk": "never changes", "one/two/growing.blk": "12345", "mark": "old", "empty": ""}
	first.write(t, from)
	before := mustTake(t, dir, first.sources(from))
	if want := int64(len("never changes" + "12345" + "old")); before.Bytes != want || before.NewBytes != want {
		t.Errorf("the first has %d bytes, %d new, want %d", before.Bytes, before.NewBytes, want)
	}
	second := maps.Clone(first)
	second["one/two/growing.blk"], second["mark"], second["one/new.blk"] = "1234567", "newer", "never changes"
	second.write(t, from)
	sources := append(second.sources(from), backup.Source{Name: "text", Size: 4, Text: []byte("made")})
	after := mustTake(t, dir, sources)
	if want := int64(len("67" + "newer" + "made")); after.NewBytes != want {
		t.Errorf("the second has %d new bytes, want %d", after.NewBytes, want)
	}
	second["text"] = "made"
	mustRestore(t, dir, before.Name, first)
	mustRestore(t, dir, "", second)
	if v := mustVerify(t, dir); v.Backups != 2 || len(v.Findings)+len(v.Unread) > 0 || v.Unused > 0 || v.Bytes != before.NewBytes+after.NewBytes {
		t.Errorf("verified: %+v", v)
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
		t.Errorf("a file that is shorter: %v", err)
	}
	if n := len(mustList(t, dir)); n != 3 {
		t.Errorf("%d backups", n)
	}
	mustTake(t, dir, []backup.Source{{Name: "f", Path: filepath.Join(from, "f"), Size: 17, Optional: true},
		{Name: "gone", Path: filepath.Join(from, "gone"), Size: 1, Optional: true},
		{Name: "g", Path: filepath.Join(from, "f"), Size: 7, Optional: true}})
	mustRestore(t, dir, "", tree{"g": "durable"})
}

// A file that was not changed is not read again, however large it is; one that was changed
// in place is, although its size is the same.
func TestStamps(t *testing.T) {
	dir, from := filepath.Join(t.TempDir(), "b"), t.TempDir()
	files := tree{"f": "first", "g": "other"}
	files.write(t, from)
	if m := mustTake(t, dir, files.sources(from)); m.Files[0].Stamp != (backup.Stamp{}) {
		t.Errorf("a file that may change again in the same moment, by the clock of its system, has the stamp %v", m.Files[0].Stamp)
	}
	files["f"] = "again"
	files.write(t, from)
	mustTake(t, dir, files.sources(from))
	mustRestore(t, dir, "", files)

	backup.SetSettled(t, -time.Hour)
	mustTake(t, dir, files.sources(from))
	over, stop := context.WithCancel(t.Context())
	stop() // whoever reads a byte now is told
	if _, err := take(over, dir, files.sources(from)); err != nil {
		t.Errorf("a file was read that was not changed: %v", err)
	}
	if err := os.Rename(filepath.Join(from, "f"), filepath.Join(from, "h")); err != nil {
		t.Fatal(err)
	}
	files.write(t, from) // another file, with the same content
	if _, err := take(over, dir, files.sources(from)); !errors.Is(err, context.Canceled) {
		t.Errorf("another file was not read: %v", err)
	}
}

// What grows with each backup does not come to consist of ever more parts.
func TestParts(t *testing.T) {
	dir, from := filepath.Join(t.TempDir(), "b"), t.TempDir()
	w, err := backup.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	files, most := tree{"f": ""}, 0
	for range backup.MostParts + 10 {
		files["f"] += "x"
		files.write(t, from)
		m, err := w.Take(t.Context(), backup.Manifest{Time: at}, files.sources(from), quiet)
		if err != nil {
			t.Fatal(err)
		}
		most = max(most, len(m.Files[0].Parts))
	}
	if most != backup.MostParts {
		t.Errorf("a file came to have %d parts, want %d", most, backup.MostParts)
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

// Find takes a name, or the beginning of one that is clear.
func TestFind(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "b")
	mustTake(t, dir, nil)
	mustTake(t, dir, nil)
	list := mustList(t, dir)
	if m, err := backup.Find(list, "20261122T150227.123"); err != nil || m.Name != "20261122T150227.123Z" {
		t.Errorf("found %v, %v", m.Name, err)
	}
	if _, err := backup.Find(list, "2026"); !is[*backup.AmbiguousError](err) {
		t.Errorf("two: %v", err)
	}
	if _, err := backup.Find(list, "2027"); !errors.Is(err, backup.ErrNoBackup) {
		t.Errorf("none: %v", err)
	}
	if _, err := backup.Find(nil, ""); !errors.Is(err, backup.ErrNoBackup) {
		t.Errorf("none at all: %v", err)
	}
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// Each object that is cut off, altered or missing is named, by Verify and by a restore,
// which leaves nothing behind. What does not need it can be restored.
func TestDamagedObject(t *testing.T) {
	dir, from := filepath.Join(t.TempDir(), "b"), t.TempDir()
	files := tree{"a/f": "one content", "g": "another"}
	files.write(t, from)
	m := mustTake(t, dir, files.sources(from))
	other := mustTake(t, dir, []backup.Source{{Name: "h", Size: 1, Text: []byte("h")}})
	for _, f := range m.Files {
		path := backup.ObjectPath(dir, f.Parts[0])
		sound, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for what, text := range map[string]string{
			"cut off": string(sound[:3]), "empty": "", "longer": string(sound) + "x", "altered": "X" + string(sound[1:]), "missing": "-",
		} {
			err := os.WriteFile(path, []byte(text), 0o600)
			if what == "missing" {
				err = os.Remove(path)
			}
			if err != nil {
				t.Fatal(err)
			}
			parent := t.TempDir()
			err = m.Restore(t.Context(), dir, filepath.Join(parent, "new"), accept, quiet)
			if d, ok := errors.AsType[*backup.DamageError](err); !ok || d.Object != path || d.File != f.Name || d.Backup != m.Name {
				t.Errorf("%s %s: %v", f.Name, what, err)
			}
			if left := read(t, parent); len(left) > 0 {
				t.Errorf("%s %s: left are %v", f.Name, what, left)
			}
			if v := mustVerify(t, dir); len(v.Findings) != 1 || v.Findings[0].Object != path {
				t.Errorf("%s %s: verified: %+v", f.Name, what, v)
			}
			mustRestore(t, dir, other.Name, tree{"h": "h"})
		}
		if err := os.WriteFile(path, sound, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if v := mustVerify(t, dir); len(v.Findings) > 0 {
		t.Errorf("in order again: %+v", v)
	}
}

// A content that was cut off is written again when it is needed.
func TestCutOffObjectIsWrittenAgain(t *testing.T) {
	dir, from := filepath.Join(t.TempDir(), "b"), t.TempDir()
	backup.SetSettled(t, -time.Hour)
	files := tree{"f": "a content"}
	files.write(t, from)
	m := mustTake(t, dir, files.sources(from))
	if err := os.Truncate(backup.ObjectPath(dir, m.Files[0].Parts[0]), 3); err != nil {
		t.Fatal(err)
	}
	if again := mustTake(t, dir, files.sources(from)); again.NewBytes != m.Bytes {
		t.Errorf("%d bytes were written", again.NewBytes)
	}
	mustRestore(t, dir, m.Name, files)
}

// A manifest of which anything is cut off or altered is never taken for a backup, nor
// passed over for an older one; backups go on, and nothing is removed that it may need.
func TestDamagedManifest(t *testing.T) {
	dir, from := filepath.Join(t.TempDir(), "b"), t.TempDir()
	files := tree{"f": "a content"}
	files.write(t, from)
	mustTake(t, dir, files.sources(from))
	files["f"] = "a content that grew"
	files.write(t, from)
	mustTake(t, dir, files.sources(from))
	path := filepath.Join(dir, "backups", mustList(t, dir)[1].File)
	sound, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range sound {
		altered := slices.Clone(sound)
		altered[i] ^= 1
		for what, text := range map[string][]byte{"cut off": sound[:i], "altered": altered} {
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
			list := mustList(t, dir)
			if len(list) != 2 || list[0].Err != nil || !errors.Is(list[1].Err, backup.ErrUnreadable) {
				t.Fatalf("%s at %d: %v", what, i, list)
			}
			if _, err := backup.Find(list, ""); !errors.Is(err, backup.ErrUnreadable) {
				t.Fatalf("%s at %d: found, %v", what, i, err)
			}
		}
	}
	if v := mustVerify(t, dir); v.Backups != 1 || len(v.Unread) != 1 {
		t.Errorf("verified: %+v", v)
	}
	w, err := backup.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := w.Take(t.Context(), backup.Manifest{Time: at, Log: "one"}, tree{}.sources(from), quiet); err != nil {
		t.Fatal(err)
	}
	if k, err := w.Keep(2); !errors.Is(err, backup.ErrUnreadable) || k != (backup.Kept{}) {
		t.Errorf("removed %+v, %v", k, err)
	}
	if err := os.WriteFile(path, sound, 0o600); err != nil {
		t.Fatal(err)
	}
	mustRestore(t, dir, "20261122T150227.124", files)
}

// Keep removes what is older, and of its contents what no other has.
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
		t.Error("none is kept")
	}
	v := mustVerify(t, dir)
	if v.Backups != 2 || v.Objects != 3 || len(v.Findings) > 0 || v.Unused > 0 {
		t.Errorf("verified: %+v", v)
	}
	mustRestore(t, dir, "", tree{"all": "all", "only 4": "only 4"})
}

// A backup that is removed while all of them are verified is not missing anything, and what
// comes meanwhile is needed.
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
			t.Fatalf("removed %+v, %v", k, err)
		}
	})
	if err != nil || len(v.Findings) > 0 || v.Unused > 0 {
		t.Errorf("verified: %+v, %v", v, err)
	}
}

// One process at a time writes to a folder, for one store.
func TestRefusals(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "b")
	w, err := backup.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := backup.Open(dir); !is[*backup.BusyError](err) {
		t.Errorf("two at once: %v", err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	mustTake(t, dir, nil)
	w, err = backup.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := w.Take(t.Context(), backup.Manifest{Time: at, Log: "two"}, nil, quiet); !is[*backup.OtherError](err) {
		t.Errorf("another store: %v", err)
	}
	if n := len(mustList(t, dir)); n != 1 {
		t.Errorf("%d backups", n)
	}

	letters := t.TempDir()
	tree{"letter": "x"}.write(t, letters)
	if _, err := backup.Open(letters); !is[*backup.NotFolderError](err) {
		t.Errorf("a folder of something else: %v", err)
	}
	if got := read(t, letters); len(got) != 1 {
		t.Errorf("it has %v", got)
	}
	if _, err := backup.List(letters); !is[*backup.NotFolderError](err) {
		t.Errorf("a folder without backups: %v", err)
	}
}

// What a system puts into a folder by itself is in nobody's way.
func TestSystemsOwnNames(t *testing.T) {
	dir := t.TempDir()
	tree{".DS_Store": "x", "lost+found/x": ""}.write(t, dir)
	mustTake(t, dir, nil)
}

// Links are not followed, out of the store or out of the folder.
func TestLinks(t *testing.T) {
	dir, from := filepath.Join(t.TempDir(), "b"), t.TempDir()
	tree{"secret": "secret"}.write(t, from)
	if err := os.Symlink(filepath.Join(from, "secret"), filepath.Join(from, "link")); err != nil {
		t.Skip(err) // Windows
	}
	if _, err := take(t.Context(), dir, []backup.Source{{Name: "link", Path: filepath.Join(from, "link"), Size: 6}}); err == nil {
		t.Error("what a link points to was copied")
	}
	m := mustTake(t, dir, []backup.Source{{Name: "f", Size: 6, Text: []byte("secret")}})
	path := backup.ObjectPath(dir, m.Files[0].Parts[0])
	if err := errors.Join(os.Remove(path), os.Symlink(filepath.Join(from, "secret"), path)); err != nil {
		t.Fatal(err)
	}
	if err := m.Restore(t.Context(), dir, filepath.Join(t.TempDir(), "new"), accept, quiet); !is[*backup.DamageError](err) {
		t.Errorf("what a link points to was restored: %v", err)
	}
}

// A restore into a folder that has something is refused; one that is not accepted, or for
// which there is no place, leaves the target as it was.
func TestTargets(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "b")
	m := mustTake(t, dir, []backup.Source{{Name: "d/f", Size: 1, Text: []byte("x")}})
	parent := t.TempDir()
	tree{"full/f": "mine", "file": "mine"}.write(t, parent)
	if err := os.Mkdir(filepath.Join(parent, "empty"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"full", "file", "file/below"} {
		if err := m.Restore(t.Context(), dir, filepath.Join(parent, name), accept, quiet); err == nil {
			t.Errorf("restored into %s", name)
		}
	}
	refuse := errors.New("not good enough")
	for _, name := range []string{"empty", "missing"} {
		err := m.Restore(t.Context(), dir, filepath.Join(parent, name), func(stage string) error {
			if got := read(t, stage); !maps.Equal(got, tree{"d/f": "x"}) {
				t.Errorf("asked for %v", got)
			}
			return refuse
		}, quiet)
		if !errors.Is(err, refuse) {
			t.Error(err)
		}
	}
	// Something comes to be there while the restore is at work.
	late := filepath.Join(parent, "late")
	err := m.Restore(t.Context(), dir, late, func(string) error {
		tree{"f": "somebody else's"}.write(t, late)
		return nil
	}, quiet)
	if !is[*backup.TargetError](err) {
		t.Errorf("a target that is taken: %v", err)
	}
	if got := read(t, parent); !maps.Equal(got, tree{"full/f": "mine", "file": "mine", "late/f": "somebody else's"}) {
		t.Errorf("there is %v", got)
	}
	for _, name := range []string{"empty", "missing", "deep/er"} {
		if err := m.Restore(t.Context(), dir, filepath.Join(parent, name), accept, quiet); err != nil {
			t.Error(err)
		}
		if got := read(t, filepath.Join(parent, name)); !maps.Equal(got, tree{"d/f": "x"}) {
			t.Errorf("%s: %v", name, got)
		}
	}
	if left := backup.Stages(filepath.Join(parent, "empty")); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
}

// A target that is a link to an empty folder stays one: what is restored is on that disk.
func TestLinkedTarget(t *testing.T) {
	dir, parent := filepath.Join(t.TempDir(), "b"), t.TempDir()
	m := mustTake(t, dir, []backup.Source{{Name: "f", Size: 1, Text: []byte("x")}})
	disk, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(parent, "link")
	if err := os.Symlink(disk, link); err != nil {
		t.Skip(err) // Windows
	}
	stage := ""
	err = m.Restore(t.Context(), dir, link, func(at string) error {
		stage = at
		if left := backup.Stages(link); !slices.Equal(left, []string{at}) {
			t.Errorf("beside it are %v", left)
		}
		return nil
	}, quiet)
	if err != nil || filepath.Dir(stage) != filepath.Dir(disk) {
		t.Errorf("made in %s, %v", stage, err)
	}
	if real, err := os.Readlink(link); err != nil || real != disk {
		t.Errorf("it is a link to %q, %v", real, err)
	}
	if got := read(t, disk); !maps.Equal(got, tree{"f": "x"}) {
		t.Errorf("there is %v", got)
	}
}

// What is restored is on disk, with the names of folders that were made for it.
func TestRestoreIsSynced(t *testing.T) {
	dir, parent := filepath.Join(t.TempDir(), "b"), t.TempDir()
	m := mustTake(t, dir, []backup.Source{{Name: "d/f", Size: 1, Text: []byte("x")}})
	synced := make(map[string]bool)
	stop := durable.Watch(func(path string) { synced[filepath.Clean(path)] = true })
	err := m.Restore(t.Context(), dir, filepath.Join(parent, "deep", "er", "new"), accept, quiet)
	stop()
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{parent, filepath.Join(parent, "deep"), filepath.Join(parent, "deep", "er")} {
		if !synced[folder] {
			t.Errorf("%s was not synced: %v", folder, synced)
		}
	}
}

// The names of all contents are on disk before the manifest that needs them, also of those
// that a process left which was ended before it could see to that.
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
			path = "the manifest" // and what comes after it is too late
		}
		if !synced["the manifest"] {
			synced[filepath.Clean(path)] = true
		}
	})
	m := mustTake(t, dir, files.sources(from))
	stop()
	if !synced["the manifest"] || !synced[filepath.Join(dir, "objects")] {
		t.Errorf("synced are %v", synced)
	}
	for _, f := range m.Files {
		if folder := filepath.Dir(backup.ObjectPath(dir, f.Parts[0])); !synced[folder] {
			t.Errorf("%s was not synced before the manifest", folder)
		}
	}
}
