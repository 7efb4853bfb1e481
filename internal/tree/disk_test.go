package tree

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/storagetest"
)

// user edits files.
type user interface {
	Put(name, content string) error    // open with truncation, one write
	Append(name, content string) error // creates it if necessary
	Remove(name string) error          // a file, or a folder with its content; "": all content
	Rename(from, to string) error
	Files() map[string]string
}

// The laws also hold on the file system.
func TestLawsOnDisk(t *testing.T) {
	testkit.NotUnderRace(t) // the test has no concurrency
	struck := make(map[string]int)
	onDisk = true
	defer func() { onDisk = false }()
	t.Run("documents", func(t *testing.T) { runPrograms(t, plainLand{}, countFor(30, 1_000), struck) })
	t.Run("a team", func(t *testing.T) { runPrograms(t, tavernLand{}, countFor(10, 1_000), struck) })
	t.Run("conversations", func(t *testing.T) { runPrograms(t, evalsLand{}, countFor(10, 1_000), struck) })
}

// onDisk makes worlds use a folder of the file system.
var onDisk bool

// openFiles returns the storage of a world, and the user of its files.
func (w *world) openFiles(t testing.TB, fold bool) (storagetest.Whole, user) {
	if !onDisk || fold {
		m := storagetest.NewMem(storagetest.MemOptions{Fold: fold, Now: func() time.Time { return w.now }})
		return m, m.Foreign()
	}
	dir, err := os.MkdirTemp("", "tree-law-")
	must(t, err)
	d := need(layouts.OpenDir(dir))
	w.over = func() { must(t, errors.Join(d.Close(), os.RemoveAll(dir))) }
	return d, folderUser(dir)
}

// folderUser edits the files of a folder.
type folderUser string

func (u folderUser) at(name string) string { return filepath.Join(string(u), filepath.FromSlash(name)) }

func (u folderUser) Put(name, content string) error {
	if err := os.MkdirAll(filepath.Dir(u.at(name)), 0o755); err != nil {
		return err
	}
	return os.WriteFile(u.at(name), []byte(content), 0o644)
}

func (u folderUser) Append(name, content string) error {
	if err := os.MkdirAll(filepath.Dir(u.at(name)), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(u.at(name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(content)
	return err
}

func (u folderUser) Remove(name string) error {
	if _, err := os.Lstat(u.at(name)); err != nil {
		return err
	}
	return os.RemoveAll(u.at(name))
}

func (u folderUser) Rename(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(u.at(to)), 0o755); err != nil {
		return err
	}
	return os.Rename(u.at(from), u.at(to))
}

func (u folderUser) Files() map[string]string {
	files := make(map[string]string)
	_ = filepath.WalkDir(string(u), func(p string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			if data, err := os.ReadFile(p); err == nil {
				name, _ := filepath.Rel(string(u), p)
				files[filepath.ToSlash(name)] = string(data)
			}
		}
		return nil
	})
	return files
}
