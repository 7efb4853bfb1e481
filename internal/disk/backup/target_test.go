package backup_test

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tallylog/tally/internal/disk/backup"
	"github.com/tallylog/tally/internal/disk/durable"
)

// One process at a time writes to a folder, for one store.
func TestRefusals(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "b")
	w, err := backup.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := backup.Open(dir); !is[*backup.BusyError](err) {
		t.Errorf("a second writer of the folder: %v", err)
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
		t.Errorf("a backup of another store: %v", err)
	}
	if n := len(mustList(t, dir)); n != 1 {
		t.Errorf("got %d backups", n)
	}

	letters := t.TempDir()
	tree{"letter": "x"}.write(t, letters)
	if _, err := backup.Open(letters); !is[*backup.NotFolderError](err) {
		t.Errorf("a folder with other files: %v", err)
	}
	if got := read(t, letters); len(got) != 1 {
		t.Errorf("the folder has %v", got)
	}
	if _, err := backup.List(letters); !is[*backup.NotFolderError](err) {
		t.Errorf("a folder without backups: %v", err)
	}
}

// Files that an operating system puts into a folder do not count as content.
func TestSystemsOwnNames(t *testing.T) {
	dir := t.TempDir()
	tree{".DS_Store": "x", "lost+found/x": ""}.write(t, dir)
	mustTake(t, dir, nil)
}

// Links are not followed, neither out of the store nor out of the folder of backups.
func TestLinks(t *testing.T) {
	dir, from := filepath.Join(t.TempDir(), "b"), t.TempDir()
	tree{"secret": "secret"}.write(t, from)
	if err := os.Symlink(filepath.Join(from, "secret"), filepath.Join(from, "link")); err != nil {
		t.Skip(err) // Windows
	}
	if _, err := take(t.Context(), dir, []backup.Source{{Name: "link", Path: filepath.Join(from, "link"), Size: 6}}); err == nil {
		t.Error("the target of a link was copied")
	}
	m := mustTake(t, dir, []backup.Source{{Name: "f", Size: 6, Text: []byte("secret")}})
	path := backup.ObjectPath(dir, m.Files[0].Parts[0])
	if err := errors.Join(os.Remove(path), os.Symlink(filepath.Join(from, "secret"), path)); err != nil {
		t.Fatal(err)
	}
	if err := m.Restore(t.Context(), dir, filepath.Join(t.TempDir(), "new"), accept, quiet); !is[*backup.DamageError](err) {
		t.Errorf("the target of a link was restored: %v", err)
	}
}

// A restore into a folder with content is refused. A restore that is not accepted, or has no room, leaves the target
// unchanged.
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
			t.Errorf("a restore into %s was accepted", name)
		}
	}
	refuse := errors.New("not good enough")
	for _, name := range []string{"empty", "missing"} {
		err := m.Restore(t.Context(), dir, filepath.Join(parent, name), func(stage string) error {
			if got := read(t, stage); !maps.Equal(got, tree{"d/f": "x"}) {
				t.Errorf("the files to be accepted are %v", got)
			}
			return refuse
		}, quiet)
		if !errors.Is(err, refuse) {
			t.Error(err)
		}
	}
	// Another process creates the target during the restore.
	late := filepath.Join(parent, "late")
	err := m.Restore(t.Context(), dir, late, func(string) error {
		tree{"f": "somebody else's"}.write(t, late)
		return nil
	}, quiet)
	if !is[*backup.TargetError](err) {
		t.Errorf("a restore to a target that another process created: %v", err)
	}
	if got := read(t, parent); !maps.Equal(got, tree{"full/f": "mine", "file": "mine", "late/f": "somebody else's"}) {
		t.Errorf("the target has %v", got)
	}
	for _, name := range []string{"empty", "missing", "deep/er"} {
		if err := m.Restore(t.Context(), dir, filepath.Join(parent, name), accept, quiet); err != nil {
			t.Error(err)
		}
		if got := read(t, filepath.Join(parent, name)); !maps.Equal(got, tree{"d/f": "x"}) {
			t.Errorf("%s: got %v", name, got)
		}
	}
	if left := backup.Stages(filepath.Join(parent, "empty")); len(left) > 0 {
		t.Errorf("the restores left %v", left)
	}
}

// A target that is a link to an empty folder stays a link: the restored files are on that disk.
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
			t.Errorf("beside the link are %v", left)
		}
		return nil
	}, quiet)
	if err != nil || filepath.Dir(stage) != filepath.Dir(disk) {
		t.Errorf("the restore was made in %s, error %v", stage, err)
	}
	if real, err := os.Readlink(link); err != nil || real != disk {
		t.Errorf("the target is a link to %q, error %v", real, err)
	}
	if got := read(t, disk); !maps.Equal(got, tree{"f": "x"}) {
		t.Errorf("the target has %v", got)
	}
}

// Restored files are synced, and so are the names of new folders.
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
