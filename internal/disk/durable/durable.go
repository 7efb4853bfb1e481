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
func Replace(path string, data []byte, mode os.FileMode, sync Sync) (err error) {
	dir, base := filepath.Split(path)
	if len(base) > 100 {
		base = base[:100] // the temporary name must fit the limit of file systems
	}
	f, err := os.CreateTemp(cmp.Or(dir, "."), base+temporaryMark+"*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	if _, err = f.Write(data); err == nil {
		err = f.Chmod(mode)
	}
	if err == nil && sync == WithSync {
		err = SyncFile(f)
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err == nil && sync == WithSync {
		err = SyncPath(dir)
	}
	return err
}

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
