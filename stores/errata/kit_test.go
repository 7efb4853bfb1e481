package errata_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// need gives the value of a call that must work.
func need[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// folder reads the files below a folder.
func folder(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		rel, _ := filepath.Rel(dir, path)
		files[filepath.ToSlash(rel)] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
