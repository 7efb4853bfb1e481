package backup_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/tallylog/tally/internal/disk/backup"
)

// Verify and a restore name each object that is truncated, altered or missing. The restore leaves no files. Backups
// that do not need the object can be restored.
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
				t.Errorf("%s %s: the restore left %v", f.Name, what, left)
			}
			if v := mustVerify(t, dir); len(v.Findings) != 1 || v.Findings[0].Object != path {
				t.Errorf("%s %s: the verification reports %+v", f.Name, what, v)
			}
			mustRestore(t, dir, other.Name, tree{"h": "h"})
		}
		if err := os.WriteFile(path, sound, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if v := mustVerify(t, dir); len(v.Findings) > 0 {
		t.Errorf("after the repair the verification reports %+v", v)
	}
}

// A truncated content is written again when a backup needs it.
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
		t.Errorf("got %d new bytes", again.NewBytes)
	}
	mustRestore(t, dir, m.Name, files)
}

// A damaged or truncated manifest is never taken for a backup, nor skipped for an older one. New backups still work,
// and contents that it may need are kept.
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
				t.Fatalf("%s at %d: the list is %v", what, i, list)
			}
			if _, err := backup.Find(list, ""); !errors.Is(err, backup.ErrUnreadable) {
				t.Fatalf("%s at %d: Find: %v", what, i, err)
			}
		}
	}
	if v := mustVerify(t, dir); v.Backups != 1 || len(v.Unread) != 1 {
		t.Errorf("the verification reports %+v", v)
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
		t.Errorf("Keep removed %+v, error %v", k, err)
	}
	if err := os.WriteFile(path, sound, 0o600); err != nil {
		t.Fatal(err)
	}
	mustRestore(t, dir, "20261122T150227.124", files)
}
