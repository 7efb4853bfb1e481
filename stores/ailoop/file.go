package ailoop

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tallylog/tally/internal/disk/durable"
	"github.com/tallylog/tally/stores/ailoop/internal/chat"
)

// File keeps a history in one JSON file, in the form of the original's files:
// version, messages and pinned, indented by two spaces, no newline at the end.
//
// A save replaces the file as a whole, so that a crash leaves the old snapshot or
// the new, and returns when the new one is on disk. It is safe for concurrent
// use; two stores on one file overwrite each other's snapshots, see
// [HistoryStore].
type File struct {
	path string
}

// NewFile makes a store of a file, which need not exist; its folder must by the first
// Save. Nothing is read or written yet.
func NewFile(path string) *File {
	return &File{path}
}

// Path is the file's path as it was given.
func (st *File) Path() string { return st.path }

// Save implements HistoryStore. An error is a *FileError; what was
// there before is there still. A file that cannot be written to is not replaced
// either; a new one can be read by its owner alone.
func (st *File) Save(ctx context.Context, s Snapshot) error {
	if err := ctx.Err(); err != nil {
		return st.failed(FileIO, err)
	}
	path, mode, err := st.target()
	if err == nil {
		err = durable.Replace(path, chat.AppendPretty(nil, s.raw()), mode, durable.WithSync)
	}
	return st.failed(FileIO, err)
}

// target returns the file behind a symbolic link, and the permission bits that it
// has or shall have.
func (st *File) target() (string, fs.FileMode, error) {
	path, err := filepath.EvalSymlinks(st.path)
	if errors.Is(err, fs.ErrNotExist) {
		return st.path, 0o600, nil
	}
	if err != nil {
		return "", 0, err
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0) // replacing it would not ask for the permission to write
	if err != nil {
		return "", 0, err
	}
	info, err := f.Stat()
	return path, info.Mode().Perm(), errors.Join(err, f.Close())
}

// Load implements HistoryStore. A file that does not exist, or whose folder does
// not, is a history that was never saved. A file that is empty, cut off, or of
// another version is an error: every error is a *FileError.
func (st *File) Load(ctx context.Context) (s Snapshot, found bool, err error) {
	if err := ctx.Err(); err != nil {
		return s, false, st.failed(FileIO, err)
	}
	data, err := os.ReadFile(st.path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, false, nil
	}
	if err != nil {
		return s, false, st.failed(FileIO, err)
	}
	raw, err := chat.Parse(data)
	if err != nil {
		return s, false, st.failed(FileJSON, err)
	}
	return snapshotOf(raw), true, nil
}

func (st *File) failed(kind FileErrorKind, err error) error {
	if err == nil {
		return nil
	}
	return &FileError{Kind: kind, Path: st.path, Err: err}
}

// FileErrorKind says at what a File failed.
type FileErrorKind int

// What can fail.
const (
	FileIO   FileErrorKind = iota // reading or writing the file
	FileJSON                      // making sense of what it holds
)

// FileError is the error of a File. It wraps its cause: of kind FileIO what the file
// system said, so that errors.Is finds fs.ErrPermission and fs.ErrNotExist; of kind
// FileJSON a *SnapshotDecodeError.
type FileError struct {
	Kind FileErrorKind
	Path string // of the file
	Err  error
}

func (e *FileError) Error() string {
	if e.Kind == FileJSON {
		return "failed to encode/decode snapshot JSON: " + e.Path + ": " + e.Err.Error()
	}
	return "failed to read/write snapshot file: " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *FileError) Unwrap() error { return e.Err }
