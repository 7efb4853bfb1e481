package layouts

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/fsnotify/fsnotify"
)

// WatchLimitError reports that the system cannot watch more folders. The caller then polls.
type WatchLimitError struct {
	Watched int // number of folders that are watched
	Err     error
}

func (e *WatchLimitError) Error() string {
	return fmt.Sprintf("layouts: the system allows no more than the %d watched folders (on Linux see sysctl fs.inotify): %v", e.Watched, e.Err)
}

func (e *WatchLimitError) Unwrap() error { return e.Err }

// dirWatch is a call of Watch.
type dirWatch struct {
	dir     *Dir
	fs      *fsnotify.Watcher
	changed func(name string)
	numbers map[string][2]uint64 // folders that are watched, with their numbers
	paths   map[[2]uint64]string // the inverse of numbers

	confused bool // the watcher has to start again
}

// Watch implements Watcher. If there are more folders than the system can watch, it returns a *WatchLimitError. If
// the folder itself is moved or removed, it returns fs.ErrNotExist.
func (d *Dir) Watch(ctx context.Context, ready func(), changed func(name string)) error {
	for {
		err := d.watch(ctx, ready, changed)
		if !errors.Is(err, errConfused) {
			return err
		}
		ready = func() { changed("") } // after the new watches, so that it covers all that the old ones missed
	}
}

// errConfused reports that fsnotify no longer knows which folders it watches.
var errConfused = errors.New("layouts: watch: fsnotify lost track of the watched folders")

func (d *Dir) watch(ctx context.Context, ready func(), changed func(name string)) error {
	system, err := fsnotify.NewWatcher()
	if err != nil {
		return limited(0, err)
	}
	defer system.Close()
	w := &dirWatch{dir: d, fs: system, changed: changed, numbers: make(map[string][2]uint64), paths: make(map[[2]uint64]string)}
	if err := w.add("", false); err != nil {
		return err
	}
	if w.confused {
		return errConfused
	}
	if ready != nil {
		ready()
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e := <-system.Events:
			err = w.event(e)
		case err = <-system.Errors:
			if errors.Is(err, fsnotify.ErrEventOverflow) {
				err = w.lost()
			}
		}
		if err == nil && w.confused {
			err = errConfused
		}
		if err != nil {
			return err
		}
	}
}

// leave stops watching a folder. fsnotify panics if it knows the folder by two names, for example after a move while it
// was added. Then the watcher starts again.
func (w *dirWatch) leave(name string) {
	defer func() {
		if recover() != nil {
			w.confused = true
		}
	}()
	_ = w.fs.Remove(w.dir.full(name)) // the system may have removed the watch, or the name is another folder now
}

// unlessPassed drops errors for folders that are gone, are not folders, or cannot be read. Their paths are reported
// to changed. It returns all other errors.
func unlessPassed(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, ErrNotFile) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP) {
		return nil
	}
	return err
}

// limited returns a *WatchLimitError if err reports a system limit.
func limited(watched int, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
		return &WatchLimitError{watched, err}
	}
	return fmt.Errorf("layouts: watch: %w", err)
}

// add watches a folder and its subfolders. It watches the folder before it lists it, so that no new file is missed.
// With say it reports the content.
func (w *dirWatch) add(folder string, say bool) error {
	number, err := w.number(folder)
	if err != nil {
		return unlessPassed(err)
	}
	if at, ok := w.paths[number]; ok && at != folder && number != [2]uint64{} {
		w.forget(at) // it was moved, and the system still reports it under the old name
	}
	if err := w.fs.Add(w.dir.full(folder)); err != nil {
		if folder != "" {
			err = unlessPassed(err)
		}
		return limited(len(w.numbers), err)
	}
	w.numbers[folder], w.paths[number] = number, folder
	list, err := w.dir.List(context.Background(), folder)
	if err != nil {
		w.forget(folder)
		return unlessPassed(err)
	}
	for _, e := range list {
		name := path.Join(folder, e.Name)
		if say {
			w.say(name)
		}
		if e.Dir {
			if err := w.add(name, say); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *dirWatch) say(name string) {
	if !IsTemporary(name) {
		w.changed(name)
	}
}

// number returns device and inode of a folder, zero for the root.
func (w *dirWatch) number(folder string) ([2]uint64, error) {
	if folder == "" {
		return [2]uint64{}, nil
	}
	p, base, err := w.dir.at("watch", folder, false)
	if err != nil {
		return [2]uint64{}, err
	}
	defer p.close()
	fi, err := p.stat(base)
	if err == nil && !fi.Dir {
		err = ErrNotFile
	}
	return fi.number, err
}

// forget stops watching a folder and its subfolders.
func (w *dirWatch) forget(folder string) {
	for name, number := range w.numbers {
		if name == folder || strings.HasPrefix(name, folder+"/") {
			w.leave(name)
			delete(w.numbers, name)
			if w.paths[number] == name {
				delete(w.paths, number)
			}
		}
	}
}

// lost starts again after the system dropped events.
func (w *dirWatch) lost() error {
	for name := range w.numbers {
		w.leave(name)
	}
	clear(w.numbers)
	clear(w.paths)
	if err := w.add("", false); err != nil {
		return err
	}
	w.changed("")
	return nil
}

func (w *dirWatch) event(e fsnotify.Event) error {
	if e.Name == w.dir.name {
		if e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename) {
			w.changed("")
			return fmt.Errorf("layouts: watch: %s is moved or removed: %w", w.dir.name, fs.ErrNotExist)
		}
		return nil
	}
	name, ok := strings.CutPrefix(e.Name, strings.TrimSuffix(w.dir.name, string(os.PathSeparator))+string(os.PathSeparator))
	if !ok {
		return nil
	}
	name = filepath.ToSlash(name)
	_, known := w.numbers[name]
	if known && e.Op == fsnotify.Chmod {
		return nil // attributes of a folder
	}
	w.say(name)
	if known && (e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename)) {
		w.forget(name)
	} else if !e.Has(fsnotify.Create) {
		return nil
	}
	return w.add(name, true)
}
