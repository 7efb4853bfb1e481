package storedir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tallylog/tally/log"
)

// OwnershipError reports that a store's directory, or an entry in it, belongs to another user or is a symbolic link.
// Another user could read the store or change it. Nothing was changed.
type OwnershipError struct {
	Path string
	User int // the owner's id; -1: Path is a symbolic link
}

func (e *OwnershipError) Error() string {
	if e.User < 0 {
		return fmt.Sprintf("embedded: %s is a symbolic link: what is written to a store stays in its directory; put there what it points to, or remove it", e.Path)
	}
	return fmt.Sprintf("embedded: %s belongs to user %d, not to you: take another directory, or have it given to you with all that is in it", e.Path, e.User)
}

// Unwrap returns log.ErrUnavailable.
func (e *OwnershipError) Unwrap() error { return log.ErrUnavailable }

// ReadOnlyError reports that the store lies on a read-only file system. The store can be read and takes no appends.
type ReadOnlyError struct{ Dir string }

func (e *ReadOnlyError) Error() string {
	return fmt.Sprintf("embedded: %s is on a read-only file system, so appends are refused: copy the store to a writable file system", e.Dir)
}

// Unwrap returns log.ErrUnavailable.
func (e *ReadOnlyError) Unwrap() error { return log.ErrUnavailable }

// Writable returns nil if this process may write to a directory. Otherwise it returns a *ReadOnlyError or the system's
// error.
func Writable(dir string) error { return orReadOnly(dir, mayWrite(dir)) }

// MakePrivate creates a directory for this user alone, or restricts an existing one to this user. Each entry must
// belong to this user and may not be a symbolic link. Deeper entries are not checked: the folders above them have
// always been private. Errors: *OwnershipError, *ReadOnlyError, or the system's.
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

// checkEntries refuses a directory with an entry that belongs to another user or is a link.
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

// CheckOwner returns an *OwnershipError if another user owns the directory. A missing directory passes.
func CheckOwner(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return nil // the caller's own access reports it
	}
	return checkMine(dir, info)
}

// checkMine refuses a link, and a file that belongs to another user.
func checkMine(path string, info fs.FileInfo) error {
	if info.Mode()&fs.ModeSymlink != 0 {
		return &OwnershipError{Path: path, User: -1}
	}
	if user, mine := ownerOf(info); !mine {
		return &OwnershipError{Path: path, User: user}
	}
	return nil
}
