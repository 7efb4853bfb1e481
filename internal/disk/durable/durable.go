// Package durable replaces files so that a crash leaves the old content or the
// new, never a part.
package durable

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// Sync selects whether a replacement also survives a power cut.
type Sync bool

const (
	NoSync   Sync = false // survives the process
	WithSync Sync = true  // survives the machine: file and directory are synced
)

const temporaryMark = ".tally-tmp-"

// IsTemporary reports whether Replace uses a file name for a temporary file. A crash may leave such a file.
func IsTemporary(name string) bool { return strings.Contains(filepath.Base(name), temporaryMark) }

// Replace writes data to path through a temporary file beside it. On an error the old file is still there, unless only
// the last step failed: then the new content is there, but a power cut may take it back.
func Replace(path string, data []byte, mode os.FileMode, sync Sync) error {
	s, err := Stage(path, data, mode, sync, time.Time{})
	if err != nil {
		return err
	}
	return s.Commit()
}

// Staged is the new content of a file, in a temporary file beside it. Commit or Drop ends it.
type Staged struct {
	path, temp string
	sync       Sync
}

// Stage writes the new content of a file, with a modification time, the zero time meaning now. The file itself does not
// change until Commit.
func Stage(path string, data []byte, mode os.FileMode, sync Sync, modified time.Time) (s Staged, err error) {
	if err := Refused(path); err != nil {
		return s, err
	}
	dir, base := filepath.Split(path)
	if len(base) > 100 {
		base = base[:100] // the temporary name must fit the limit of file systems
	}
	f, err := os.CreateTemp(cmp.Or(dir, "."), base+temporaryMark+"*")
	if err != nil {
		return s, err
	}
	s = Staged{path, f.Name(), sync}
	if _, err = f.Write(data); err == nil {
		err = f.Chmod(mode)
	}
	if err == nil && !modified.IsZero() {
		err = os.Chtimes(f.Name(), modified, modified)
	}
	if err == nil && sync == WithSync {
		err = SyncFile(f)
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		s.Drop()
	}
	return s, err
}

// Commit replaces the file. On an error the old file is still there, unless only the sync of the directory failed.
func (s Staged) Commit() error {
	if err := os.Rename(s.temp, s.path); err != nil {
		s.Drop()
		return err
	}
	if s.sync == WithSync {
		return SyncPath(filepath.Dir(s.path))
	}
	return nil
}

// Drop removes the new content.
func (s Staged) Drop() { os.Remove(s.temp) }

// SyncPath makes the names in a directory durable: see SyncDir.
func SyncPath(dir string) error {
	d, err := os.Open(cmp.Or(dir, "."))
	if err != nil {
		return err
	}
	defer d.Close()
	return SyncDir(d)
}

// SyncFile makes the content of a file durable.
func SyncFile(f *os.File) error {
	err := f.Sync()
	if err == nil {
		synced(f)
	}
	return err
}

// SyncDir makes the names in an open directory durable. Windows cannot sync directories: a rename there is durable with
// the file system's own journal. On other systems some file systems refuse it (EINVAL), which is ignored.
func SyncDir(d *os.File) error {
	if err := d.Sync(); err != nil && runtime.GOOS != "windows" && !errors.Is(err, syscall.EINVAL) {
		return fmt.Errorf("sync %s: %w", d.Name(), err)
	}
	synced(d)
	return nil
}

// watcher is called with each synced path; it may be nil.
var watcher atomic.Pointer[func(path string)]

func synced(f *os.File) {
	if tell := watcher.Load(); tell != nil {
		(*tell)(f.Name())
	}
}

// Watch calls tell with the name of each synced file and directory, until stop is called. It is for tests, one at a
// time: a missing sync shows only after a power cut.
func Watch(tell func(path string)) (stop func()) {
	watcher.Store(&tell)
	return func() { watcher.Store(nil) }
}

// guard is asked before each write; it may be nil.
var guard atomic.Pointer[func(path string) error]

// Refused returns the error that a test wants for the next write of a file, and otherwise nil. Replace calls it, and so
// does code that writes the program's own files in another way.
func Refused(path string) error {
	if ask := guard.Load(); ask != nil {
		return (*ask)(path)
	}
	return nil
}

// Guard calls ask before each write of a file, until stop is called: an error of ask becomes the error of the write. It
// is for tests, one at a time. See package internal/testkit/smallwrites.
func Guard(ask func(path string) error) (stop func()) {
	guard.Store(&ask)
	return func() { guard.Store(nil) }
}
