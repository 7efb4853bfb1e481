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

// WatchLimitError says that a system watches no more folders. Who asked for it looks by itself, from
// time to time.
type WatchLimitError struct {
	Watched int // folders that could be
	Err     error
}

func (e *WatchLimitError) Error() string {
	return fmt.Sprintf("formats: %d folders are watched, and the system allows no more (on Linux see sysctl fs.inotify): %v", e.Watched, e.Err)
}

func (e *WatchLimitError) Unwrap() error { return e.Err }

// dirWatch is a call of Watch.
type dirWatch struct {
	dir     *Dir
	fs      *fsnotify.Watcher
	changed func(path string)
	numbers map[string][2]uint64 // folders that are watched, with their numbers
	paths   map[[2]uint64]string // the other way round

	confused bool // the watcher is to be begun anew
}

// Watch implements Watcher. It ends with a *WatchLimitError when there are more folders than the
// system watches, and with fs.ErrNotExist when the folder itself is moved or removed.
func (d *Dir) Watch(ctx context.Context, ready func(), changed func(path string)) error {
	for {
		err := d.watch(ctx, ready, changed)
		if !errors.Is(err, errConfused) {
			return err
		}
		ready = nil
		changed("")
	}
}

// errConfused says that the watcher of the system's package has lost count of its folders.
var errConfused = errors.New("formats: watch: begun anew")

func (d *Dir) watch(ctx context.Context, ready func(), changed func(path string)) error {
	system, err := fsnotify.NewWatcher()
	if err != nil {
		return limited(0, err)
	}
	defer system.Close()
	w := &dirWatch{dir: d, fs: system, changed: changed, numbers: make(map[string][2]uint64), paths: make(map[[2]uint64]string)}
	if err := w.add("", false); err != nil {
		return err
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

// leave ends the watching of a folder. The package panics if it knew the folder by two names, as
// when somebody moves it while it is added: nothing more is believed of it then.
func (w *dirWatch) leave(name string) {
	defer func() {
		if recover() != nil {
			w.confused = true
		}
	}()
	_ = w.fs.Remove(w.dir.full(name)) // the system may have forgotten it, or it is another one by now
}

// unlessPassed returns an error unless it says that there is no folder any more, or none that
// may be read: that is said, by its path, where it is.
func unlessPassed(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, ErrNotFile) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP) {
		return nil
	}
	return err
}

// limited says of an error whether it is that of a limit.
func limited(watched int, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
		return &WatchLimitError{watched, err}
	}
	return fmt.Errorf("formats: watch: %w", err)
}

// add watches a folder and those in it: first the folder, so that nothing comes unseen. With say
// it says what is there.
func (w *dirWatch) add(folder string, say bool) error {
	number, err := w.number(folder)
	if err != nil {
		return unlessPassed(err)
	}
	if at, ok := w.paths[number]; ok && at != folder && number != [2]uint64{} {
		w.forget(at) // it was moved, and the system goes on to tell of it by that name
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

// number returns the numbers of a folder.
func (w *dirWatch) number(folder string) ([2]uint64, error) {
	if folder == "" {
		return [2]uint64{}, nil
	}
	p, base, err := w.dir.at("watch", folder, false)
	if err != nil {
		return [2]uint64{}, err
	}
	defer p.close()
	info, err := p.stat(base)
	if err == nil && !info.Dir {
		err = ErrNotFile
	}
	return info.number, err
}

// forget ends the watching of a folder and of those in it.
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

// lost is done when the system has dropped what it had to tell.
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
			return fmt.Errorf("formats: watch: %s is moved or removed: %w", w.dir.name, fs.ErrNotExist)
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
		return nil // of a folder
	}
	w.say(name)
	if known && (e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename)) {
		w.forget(name)
	} else if !e.Has(fsnotify.Create) {
		return nil
	}
	return w.add(name, true)
}
