// Package durable replaces files so that a crash leaves the old content or the
// new, never a part.
package durable

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Sync says whether a replacement also survives a power cut.
type Sync bool

const (
	NoSync   Sync = false // survives the process
	WithSync Sync = true  // survives the machine: file and directory are synced
)

const temporaryMark = ".tally-tmp-"

// IsTemporary reports whether a file's name is one that Replace uses while it
// writes; a crash may leave such a file behind.
func IsTemporary(name string) bool { return strings.Contains(filepath.Base(name), temporaryMark) }

// Replace writes data to path by way of a temporary file beside it. On an error
// what was at path before is there still, unless only the last step failed: then
// the new content is there, and a power cut may take it back.
func Replace(path string, data []byte, mode os.FileMode, sync Sync) (err error) {
	dir, base := filepath.Split(path)
	if len(base) > 100 {
		base = base[:100] // the temporary name must not grow beyond what a file system takes
	}
	f, err := os.CreateTemp(dir, base+temporaryMark+"*")
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
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err == nil && sync == WithSync {
		err = syncDir(dir)
	}
	return err
}

// syncDir makes the names in a directory durable, on systems that know how.
func syncDir(dir string) error {
	if dir == "" {
		dir = "."
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !unsupported(err) {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return nil
}
