package storedir

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestBackups(t *testing.T) {
	dir, a, b := t.TempDir(), t.TempDir(), t.TempDir()
	if have, err := Backups(dir); len(have) > 0 || err != nil {
		t.Fatalf("no file: %v, %v", have, err)
	}
	for _, folder := range []string{a, b, a + "/."} {
		if err := NoteBackups(dir, folder); err != nil {
			t.Fatal(err)
		}
	}
	if have, err := Backups(dir); err != nil || !slices.Equal(have, []string{a, b}) {
		t.Errorf("got %v, %v", have, err)
	}
	if err := os.WriteFile(filepath.Join(dir, backupsFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Backups(dir); !IsDamaged(err) {
		t.Errorf("a damaged file: %v", err)
	}
	if err := NoteBackups(dir, b); err != nil {
		t.Fatal(err)
	}
	if have, err := Backups(dir); err != nil || !slices.Equal(have, []string{b}) {
		t.Errorf("after damage: got %v, %v", have, err)
	}
}
