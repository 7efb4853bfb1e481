package embedded

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tallylog/tally/log"
)

// OwnershipError says that a store directory, or something in it, is not this user's
// alone: whoever else it belongs to can read it, and change what is believed of it.
// Nothing was changed.
type OwnershipError struct {
	Path string
	User int // to whom it belongs; -1: it is a symbolic link, to wherever
}

func (e *OwnershipError) Error() string {
	if e.User < 0 {
		return fmt.Sprintf("embedded: %s is a symbolic link: what is written to a store stays in its directory; put there what it points to, or remove it", e.Path)
	}
	return fmt.Sprintf("embedded: %s belongs to user %d, not to you: take another directory, or have it given to you with all that is in it", e.Path, e.User)
}

// Unwrap returns log.ErrUnavailable.
func (e *OwnershipError) Unwrap() error { return log.ErrUnavailable }

// ReadOnlyError says that the store is where nothing can be written: it can be read, and appended
// to it is nothing.
type ReadOnlyError struct{ Dir string }

func (e *ReadOnlyError) Error() string {
	return fmt.Sprintf("embedded: the file system of %s is read-only: the store can be read, and not written to: copy the directory to where that can be done, and open the copy", e.Dir)
}

// Unwrap returns log.ErrUnavailable.
func (e *ReadOnlyError) Unwrap() error { return log.ErrUnavailable }

// MakePrivate makes a directory as a store's is: this user's, for this user alone. From then on
// nobody else puts anything there; what somebody put there before is looked for once: each thing
// in it must be this user's, and none a link to elsewhere. (What is deeper is in folders
// that were made for this user alone.) Errors: *OwnershipError, *ReadOnlyError, or the system's.
func MakePrivate(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return orReadOnly(dir, err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return &fs.PathError{Op: "open", Path: dir, Err: errors.New("not a directory")}
	}
	if err := checkMine(dir, info); err != nil {
		return err
	}
	if err := mayWrite(dir); err != nil {
		return orReadOnly(dir, err)
	}
	if info.Mode().Perm() != 0o700 {
		if err := os.Chmod(dir, 0o700); err != nil {
			return err
		}
	}
	return checkEntries(dir)
}

// checkEntries refuses what is somebody else's in a directory, or a link.
func checkEntries(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // the owner of the store may be at work
		}
		if err != nil {
			return err
		}
		if err := checkMine(filepath.Join(dir, e.Name()), info); err != nil {
			return err
		}
	}
	return nil
}

// checkOwner refuses a directory that is there and somebody else's.
func checkOwner(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return nil // whoever needs it says so
	}
	return checkMine(dir, info)
}

// checkMine refuses what is somebody else's, or a link.
func checkMine(path string, info fs.FileInfo) error {
	if info.Mode()&fs.ModeSymlink != 0 {
		return &OwnershipError{Path: path, User: -1}
	}
	if user, mine := ownerOf(info); !mine {
		return &OwnershipError{Path: path, User: user}
	}
	return nil
}
