package durable_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/tallylog/tally/internal/disk/durable"
)

func mustHold(t *testing.T, path, want string, beside int) {
	t.Helper()
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("the content of %s is %.20q, error %v", path, got, err)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != beside+1 {
		t.Errorf("the directory has %v, error %v", entries, err)
	}
}

// Replace sets the whole content and the mode, and leaves no other files.
func TestReplace(t *testing.T) {
	for _, sync := range []durable.Sync{durable.NoSync, durable.WithSync} {
		path := filepath.Join(t.TempDir(), "file")
		for _, content := range []string{"first", "", "second, longer"} {
			if err := durable.Replace(path, []byte(content), 0o640, sync); err != nil {
				t.Fatal(err)
			}
			mustHold(t, path, content, 0)
		}
		if info, err := os.Stat(path); err != nil || info.Mode() != 0o640 {
			t.Errorf("the mode is %v, error %v", info.Mode(), err)
		}
	}
}

// Replace works with a name of the maximum length, and with a name in the working directory.
func TestReplaceNames(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, path := range []string{strings.Repeat("x", 255), strings.Repeat("é", 127), "plain"} {
		if err := durable.Replace(path, []byte("x"), 0o600, durable.WithSync); err != nil {
			t.Error(err)
		}
	}
}

// An error before the file has its name leaves the old content and nothing else.
func TestReplaceFails(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "target", "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := durable.Replace(filepath.Join(dir, "target"), []byte("x"), 0o600, durable.WithSync); err == nil {
		t.Error("a directory was replaced")
	}
	mustBeAlone(t, dir, "target")

	file := filepath.Join(dir, "target", "full", "file")
	if err := os.WriteFile(file, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(file, "below"), filepath.Join(dir, "missing", "file")} {
		if err := durable.Replace(path, []byte("x"), 0o600, durable.WithSync); err == nil {
			t.Errorf("Replace wrote %s", path)
		}
	}
	mustHold(t, file, "old", 0)
}

func mustBeAlone(t *testing.T, dir, name string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != name {
		t.Errorf("the directory %s has %v, error %v", dir, entries, err)
	}
}

// A crash between two steps leaves a temporary file. IsTemporary recognises it, and later calls ignore it.
func TestLeftover(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(dir, "file.tally-tmp-1")
	if err := os.WriteFile(left, bytes.Repeat([]byte("x"), 10), 0o600); err != nil {
		t.Fatal(err)
	}
	mustHold(t, path, "old", 1)
	if err := durable.Replace(path, []byte("new"), 0o600, durable.NoSync); err != nil {
		t.Fatal(err)
	}
	mustHold(t, path, "new", 1)
	if !durable.IsTemporary(left) || durable.IsTemporary(path) || durable.IsTemporary(filepath.Join(left, "file")) {
		t.Error("IsTemporary confuses temporary files with others")
	}
}

// With sync, Replace syncs the new content before the rename, and the directory after it.
func TestReplaceSyncs(t *testing.T) {
	for _, sync := range []durable.Sync{durable.NoSync, durable.WithSync} {
		dir := t.TempDir()
		path := filepath.Join(dir, "file")
		if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
			t.Fatal(err)
		}
		var list []string
		stop := durable.Watch(func(name string) {
			have, err := os.ReadFile(path)
			if err != nil {
				t.Error(err)
			}
			what := "directory"
			if durable.IsTemporary(name) {
				what = "file"
			}
			list = append(list, what+" while there is "+string(have))
		})
		err := durable.Replace(path, []byte("new"), 0o600, sync)
		stop()
		want := "file while there is old, directory while there is new"
		if !sync {
			want = ""
		}
		if got := strings.Join(list, ", "); err != nil || got != want {
			t.Errorf("with sync %v: %q, want %q (%v)", sync, got, want, err)
		}
	}
}

// A file that is open elsewhere has only zeros after it was erased.
func TestErase(t *testing.T) {
	for _, size := range []int{0, 1, 1<<20 - 1, 1<<20 + 1} {
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, bytes.Repeat([]byte("x"), size), 0o600); err != nil {
			t.Fatal(err)
		}
		open, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer open.Close()
		if err := durable.Erase(path); err != nil && runtime.GOOS != "windows" {
			t.Fatal(err)
		}
		left, err := io.ReadAll(open)
		if err != nil || !bytes.Equal(left, make([]byte, size)) {
			t.Errorf("%d bytes: %d remain, %d of them zeros, %v", size, len(left), bytes.Count(left, []byte{0}), err)
		}
		if _, err := os.Stat(path); runtime.GOOS != "windows" && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%d bytes: the file remains: %v", size, err)
		}
	}
}
