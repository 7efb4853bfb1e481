package formats

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"runtime"
	"strings"
)

// Storage is a place for files: as little as rendering sessions into a folder,
// and keeping that folder up to date, needs. Paths have slashes and are relative
// to the storage; one that could lead out of it is a *PathError. What is not
// there is fs.ErrNotExist.
type Storage interface {
	// List returns the entries of a folder, "" for the storage itself, sorted by name.
	List(ctx context.Context, path string) ([]Entry, error)
	// Read opens a file.
	Read(ctx context.Context, path string) (io.ReadCloser, error)
	// Write puts what content writes in the place of a file, and makes the folders
	// above it. Readers see the old content or the new, never a part.
	Write(ctx context.Context, path string, mode fs.FileMode, content func(io.Writer) error) error
	// Append adds to a file, which need not exist.
	Append(ctx context.Context, path string, content []byte) error
	// Stat describes a file or folder.
	Stat(ctx context.Context, path string) (Entry, error)
	// Delete removes a file, or a folder that is empty.
	Delete(ctx context.Context, path string) error
}

// Entry describes a file or folder.
type Entry struct {
	Name string // last element of its path
	Dir  bool
	Size int64
	Mode fs.FileMode // permission bits
}

// PathError refuses a path that could lead out of a storage.
type PathError struct{ Path string }

func (e *PathError) Error() string {
	return fmt.Sprintf("formats: %q is not a path inside the folder", e.Path)
}

// checkPath refuses what is not made of plain names.
func checkPath(path string) error {
	for name := range strings.SplitSeq(path, "/") {
		if !IsFileName(name) {
			return &PathError{path}
		}
	}
	if !filepath.IsLocal(filepath.FromSlash(path)) {
		return &PathError{path}
	}
	return nil
}

// The permission bits that are worth keeping: whether others may read, and
// whether it is a program.
const (
	modeFile           = 0o644
	modeProgram        = 0o755
	modePrivate        = 0o600
	modePrivateProgram = 0o700
)

// ModeOf returns the permission bits by which a file is remembered, 0 for those of
// an ordinary file. Whether the owner may write is not kept.
func ModeOf(perm fs.FileMode) int64 {
	if runtime.GOOS == "windows" {
		return 0 // it has none
	}
	private, program := perm&0o077 == 0, perm&0o100 != 0
	switch {
	case private && program:
		return modePrivateProgram
	case private:
		return modePrivate
	case program:
		return modeProgram
	}
	return 0
}

// FileMode returns the permission bits of a remembered mode; 0 is 0644.
func FileMode(mode int64) fs.FileMode {
	if mode == 0 {
		return modeFile
	}
	return fs.FileMode(mode) & fs.ModePerm
}
