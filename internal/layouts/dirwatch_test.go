package layouts_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tallylog/tally/internal/layouts"
)

// watched is a watched folder with the reported paths.
type watched struct {
	*layouts.Dir
	t     *testing.T
	name  string
	mu    sync.Mutex
	said  map[string]bool // since the last awaited path
	ever  map[string]bool
	more  chan struct{}
	ended chan error
	pause sync.Mutex // while held, the watcher's events wait

	whenAll func() // if not nil, called when a change of everything is reported, before the watcher goes on
}

func watchDir(t *testing.T, prepare func(d *layouts.Dir)) *watched { return watchAll(t, prepare, nil) }

func watchAll(t *testing.T, prepare func(d *layouts.Dir), whenAll func(name string)) *watched {
	t.Helper()
	d, name := openDir(t)
	if prepare != nil {
		prepare(d)
	}
	w := &watched{Dir: d, t: t, name: name, said: make(map[string]bool), ever: make(map[string]bool), more: make(chan struct{}, 1), ended: make(chan error, 1)}
	if whenAll != nil {
		w.whenAll = func() { whenAll(name) }
	}
	ctx, cancel := context.WithCancel(t.Context())
	ready, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		w.ended <- d.Watch(ctx, func() { close(ready) }, func(path string) {
			w.pause.Lock()
			defer w.pause.Unlock()
			w.mu.Lock()
			defer w.mu.Unlock()
			if path == "" && w.whenAll != nil {
				w.whenAll()
			}
			w.said[path], w.ever[path] = true, true
			select {
			case w.more <- struct{}{}:
			default:
			}
		})
	}()
	t.Cleanup(func() { cancel(); <-gone })
	select {
	case <-ready:
	case err := <-w.ended:
		t.Fatal(err)
	}
	return w
}

func (w *watched) full(name string) string { return filepath.Join(w.name, filepath.FromSlash(name)) }

func (w *watched) must(errs ...error) {
	w.t.Helper()
	if err := errors.Join(errs...); err != nil {
		w.t.Fatal(err)
	}
}

// await waits until a path is reported, and clears the reported paths.
func (w *watched) await(what, path string) {
	w.t.Helper()
	w.awaitAny(what, path)
}

// awaitAny waits until one of the paths is reported, clears the reported paths, and returns the first of them.
func (w *watched) awaitAny(what string, paths ...string) string {
	w.t.Helper()
	late := time.After(time.Minute) // the test fails then
	for {
		w.mu.Lock()
		seen := slices.IndexFunc(paths, func(path string) bool { return w.said[path] })
		if seen >= 0 {
			clear(w.said)
		}
		w.mu.Unlock()
		if seen >= 0 {
			return paths[seen]
		}
		select {
		case <-w.more:
		case err := <-w.ended:
			w.t.Fatalf("%s: Watch ended: %v", what, err)
		case <-late:
			w.t.Fatalf("%s: none of %q was reported; reported were %v", what, paths, w.said)
		}
	}
}

func (w *watched) everSaid(path string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ever[path]
}

// edit changes a file and waits until its path is reported. If the watcher reports a change of everything instead,
// as it does when it starts again, edit changes the file once more.
func (w *watched) edit(name string) {
	w.t.Helper()
	for {
		w.must(os.WriteFile(w.full(name), []byte("x"), 0o644))
		if w.awaitAny("an edit of "+name, name, "") == name {
			return
		}
	}
}

// After a folder was moved, changes in it are reported by its new path. The content of a new folder is reported.
func TestDirWatch(t *testing.T) {
	w := watchDir(t, func(d *layouts.Dir) { must(t, d.Write(t.Context(), "a/b/c/file", 0o644, text("x"))) })
	w.edit("a/b/c/file")
	w.must(os.Rename(w.full("a/b"), w.full("z")))
	w.await("a folder that came", "z/c/file")
	w.edit("z/c/file")
	w.must(os.MkdirAll(w.full("new/deep"), 0o755), os.WriteFile(w.full("new/deep/file"), nil, 0o644))
	w.await("a file in new folders", "new/deep/file")
	w.must(os.Mkdir(w.full("n"), 0o755), os.Rename(w.full("z/c"), w.full("n/c"))) // into a folder that is not watched yet
	w.await("a folder in a new folder", "n/c/file")
	w.edit("n/c/file")
	w.must(os.Rename(w.full("n/c"), w.full("z/c")), os.Mkdir(w.full("n/c"), 0o755))
	w.edit("n/c/file")
	w.edit("z/c/file")
	w.must(os.RemoveAll(w.full("n")))
	w.await("a folder that went", "n")
	w.must(os.Mkdir(w.full("n"), 0o755))
	w.edit("n/again")
	w.must(os.WriteFile(w.full("n/x.tally-tmp-1"), nil, 0o644), os.WriteFile(w.full("n/more"), nil, 0o644))
	w.edit("n/again")
	if w.everSaid("n/x.tally-tmp-1") {
		t.Error("a temporary file was reported")
	}
	w.must(os.Rename(w.name, w.name+"2"))
	if err := <-w.ended; !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Watch after a move of the folder: %v", err)
	}
	if !w.everSaid("") {
		t.Error("the move was not reported as a change of everything")
	}
}

// If the system drops events, the watcher reports that anything may have changed, and watches new folders.
func TestDirWatchOverflow(t *testing.T) {
	w := watchDir(t, nil)
	w.must(os.WriteFile(w.full("a"), nil, 0o644))
	w.await("a file", "a")
	w.pause.Lock()
	a, err := os.OpenFile(w.full("a"), os.O_WRONLY, 0)
	w.must(err)
	defer a.Close()
	for n := range 12_000 { // the system merges equal events in sequence
		w.must(os.Chmod(w.full("a"), fs.FileMode(0o600+n%2)))
		_, err := a.WriteAt([]byte("x"), 0)
		w.must(err)
	}
	w.must(os.Mkdir(w.full("unseen"), 0o755))
	w.pause.Unlock()
	w.await("an overflow", "")
	w.edit("unseen/file")
}

// Folders that are moved at the same time all stay watched.
func TestDirWatchMoves(t *testing.T) {
	w := watchAll(t, func(d *layouts.Dir) {
		for n := range 8 {
			must(t, d.Write(t.Context(), fmt.Sprintf("%d/x/y/file", n), 0o644, text("x")))
		}
	}, func(name string) {
		if err := os.WriteFile(filepath.Join(name, "meanwhile"), nil, 0o644); err != nil {
			t.Error(err)
		}
	})
	for n := range 200 {
		from, to := w.full(fmt.Sprint(n%8)), w.full(fmt.Sprint((n*5+1)%8))
		w.must(os.Rename(from, w.full("between")))
		if err := os.Rename(filepath.Join(w.full("between"), "x"), filepath.Join(to, fmt.Sprintf("x%d", n))); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		w.must(os.Rename(w.full("between"), from))
	}
	var files []string
	w.must(filepath.WalkDir(w.name, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && d.Name() != "meanwhile" {
			rel, _ := filepath.Rel(w.name, path)
			files = append(files, filepath.ToSlash(rel))
		}
		return err
	}))
	if w.everSaid("") { // the watcher has started again, and watches the folder when it says so
		w.await("a change during the report", "meanwhile")
	}
	w.edit("last")
	if len(files) != 8 {
		t.Errorf("got %q", files)
	}
	for _, name := range files {
		w.edit(name)
	}
}
