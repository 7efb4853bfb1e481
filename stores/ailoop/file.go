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

// File keeps a history in one JSON file, in the format of the original's files: version, messages and pinned,
// indented by two spaces, without a final newline.
//
// A save replaces the whole file and returns when the new one is on disk. A crash leaves the old snapshot or the new.
// File is safe for concurrent use. Two stores on one file overwrite each other's snapshots, see [HistoryStore].
type File struct {
	path string
}

// NewFile returns a store on a file, which need not exist. Its folder must exist at the first Save. NewFile reads and
// writes nothing.
func NewFile(path string) *File {
	return &File{path}
}

// Path returns the file's path as it was passed to NewFile.
func (st *File) Path() string { return st.path }

// Save implements HistoryStore. An error is a *FileError; the previous content stays. Save does not replace a file
// without write permission. Only its owner can read a new file.
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

// target returns the file behind a symbolic link, and its permission bits, or those for a new file.
func (st *File) target() (string, fs.FileMode, error) {
	path, err := filepath.EvalSymlinks(st.path)
	if errors.Is(err, fs.ErrNotExist) {
		return st.path, 0o600, nil
	}
	if err != nil {
		return "", 0, err
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0) // a rename would not check the permission to write
	if err != nil {
		return "", 0, err
	}
	info, err := f.Stat()
	return path, info.Mode().Perm(), errors.Join(err, f.Close())
}

// Load implements HistoryStore. If the file or its folder does not exist, the history was never saved. An empty or
// truncated file, or another version, is an error. Every error is a *FileError.
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

// FileErrorKind is the step at which a File failed.
type FileErrorKind int

// The steps that can fail.
const (
	FileIO   FileErrorKind = iota // reading or writing the file
	FileJSON                      // parsing its content
)

// FileError is the error of a File. It wraps its cause. For kind FileIO, that is the error of the file system, so
// that errors.Is finds fs.ErrPermission and fs.ErrNotExist. For kind FileJSON, it is a *SnapshotDecodeError.
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
