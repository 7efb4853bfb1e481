//go:build !linux

package embedded

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// blockSync exists where storedir.GroupSyncs can be true.
type blockSync struct{}

func newBlockSync(string, func(string) error) *blockSync { return &blockSync{} }

func (*blockSync) sync(string) error { return errors.New("embedded: no group sync on this system") }

func (*blockSync) rewrite() error { return nil }

func (*blockSync) forget() {}

func (*blockSync) close() {}

// syncTree makes everything below a directory durable: files, then the directories
// that name them.
func syncTree(dir string) error {
	var dirs []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			dirs = append(dirs, path)
			return nil
		case !d.Type().IsRegular():
			return nil
		}
		return syncFile(path, os.O_RDWR)
	})
	if err != nil || runtime.GOOS == "windows" { // which cannot sync a directory, and need not
		return err
	}
	for i := len(dirs) - 1; i >= 0; i-- {
		if err := syncFile(dirs[i], os.O_RDONLY); err != nil {
			return err
		}
	}
	return nil
}

func syncFile(path string, flag int) error {
	f, err := os.OpenFile(path, flag, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // removed meanwhile
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		return fmt.Errorf("sync %s: %v", path, err)
	}
	return nil
}
