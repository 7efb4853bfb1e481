package evals_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/stores/evals"
)

// A missing store reads as an empty one. Reading it leaves only the log's own directory, without a record: no file in
// the project, in the home, or beside the store.
func TestMissingStore(t *testing.T) {
	t.Run("T-03 list of a store that is not there", func(t *testing.T) {
		dir := alone(t)
		store := filepath.Join(dir, "not", "there")
		for range 2 { // the second one finds the directory of the first
			st, err := embedded.Open(t.Context(), embedded.Options{ConfigDir: dir, Store: store})
			if err != nil {
				t.Fatal(err)
			}
			if list, err := evals.List(t.Context(), st); err != nil || len(list) != 0 {
				t.Errorf("got %v, error %v", list, err)
			}
			if c, found, err := evals.Get(t.Context(), st, "c1"); c != nil || found || err != nil {
				t.Errorf("%v, %v, %v", c, found, err)
			}
			if head, err := st.Log.Head(t.Context()); head != 0 || err != nil {
				t.Errorf("a read of a missing store wrote: head %v, error %v", head, err)
			}
			if err := st.Close(); err != nil {
				t.Fatal(err)
			}
		}
		for _, root := range []string{dir, os.Getenv("HOME")} {
			for _, path := range filesBelow(t, root) {
				if !strings.HasPrefix(path, store+string(filepath.Separator)) {
					t.Errorf("a read of a missing store created %s", path)
				}
			}
		}
	})
	t.Run("T-01 nothing but the log's own directory before the first append", func(t *testing.T) {
		dir := alone(t)
		st, err := embedded.Open(t.Context(), embedded.Options{ConfigDir: dir})
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close()
		if head, err := st.Log.Head(t.Context()); head != 0 || err != nil {
			t.Errorf("opening the store wrote: head %v, error %v", head, err)
		}
		own := filepath.Join(os.Getenv("XDG_DATA_HOME"), "tally") + string(filepath.Separator)
		for _, root := range []string{dir, os.Getenv("HOME")} {
			for _, path := range filesBelow(t, root) {
				if !strings.HasPrefix(path, own) {
					t.Errorf("opening the store created %s outside of the log's directory", path)
				}
			}
		}
	})
}

// filesBelow lists the files below a folder.
func filesBelow(t *testing.T, dir string) (list []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			list = append(list, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}
