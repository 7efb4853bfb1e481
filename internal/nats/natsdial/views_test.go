package natsdial

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tallylog/tally/internal/disk/lockfile"
)

// Folders of views that were not used for 30 days are removed with the files that name them, and nothing else is.
func TestUnusedViews(t *testing.T) {
	t.Run("B-35 every mixture of uses", func(t *testing.T) {
		dir, now := t.TempDir(), time.Now()
		age := func(path string, is bool) {
			t.Helper()
			when := now.Add(-unusedFor + time.Hour)
			if is {
				when = now.Add(-unusedFor - time.Hour)
			}
			if err := os.Chtimes(path, when, when); err != nil {
				t.Fatal(err)
			}
		}
		write := func(path, text string, old bool) {
			t.Helper()
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			age(path, old)
		}
		const written, opened, held, trees, foreign, made = 1, 2, 4, 8, 16, 32
		stays := make(map[string]bool)
		for uses := range 64 {
			name := fmt.Sprintf("%016x", uses)
			if uses&foreign != 0 {
				name = "kept-" + name
			}
			folder := filepath.Join(dir, name)
			if err := os.Mkdir(folder, 0o700); err != nil {
				t.Fatal(err)
			}
			write(filepath.Join(folder, "search.db"), "", true)
			write(filepath.Join(folder, "views.db"), "", uses&written == 0)
			write(filepath.Join(dir, "a"+name+pointer), name, uses&opened == 0)
			write(filepath.Join(dir, "b"+name+pointer), name, true)
			lock := filepath.Join(folder, "views.lock")
			write(lock, "", true)
			if uses&held != 0 {
				f, err := lockfile.Take(lock)
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
			}
			if uses&trees != 0 {
				if err := os.Mkdir(filepath.Join(folder, "trees"), 0o700); err != nil {
					t.Fatal(err)
				}
				age(filepath.Join(folder, "trees"), true)
			}
			age(folder, uses&made == 0)
			stays[name] = uses != 0
		}
		removeUnused(dir, now)
		for name, want := range stays {
			for _, path := range []string{name, filepath.Join(name, "search.db"), "a" + name + pointer, "b" + name + pointer} {
				if _, err := os.Stat(filepath.Join(dir, path)); (err == nil) != want || err != nil && !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("%s: got %v, want it to stay: %v", path, err, want)
				}
			}
		}
	})
}
