package ailoop

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tallylog/tally/internal/durable"
	"github.com/tallylog/tally/stores/ailoop/internal/chat"
)

// JsonFileHistoryStore keeps a history in one JSON file, in the form of the
// original's files: version, messages and pinned, indented by two spaces, no
// newline at the end.
//
// A save replaces the file as a whole, so that a crash leaves the old snapshot or
// the new, and returns when the new one is on disk. It is safe for concurrent
// use; two stores on one file overwrite each other's snapshots, see
// [HistoryStore].
type JsonFileHistoryStore struct {
	path string
}

// NewJsonFileHistoryStore makes a store of a file, which need not exist; its
// folder must by the first Save. Nothing is read or written yet.
func NewJsonFileHistoryStore(path string) *JsonFileHistoryStore {
	return &JsonFileHistoryStore{path}
}

// Path is the file's path as it was given.
func (st *JsonFileHistoryStore) Path() string { return st.path }

// Save implements HistoryStore. An error is a *JsonFileHistoryError; what was
// there before is there still. A file that cannot be written to is not replaced
// either; a new one can be read by its owner alone.
func (st *JsonFileHistoryStore) Save(ctx context.Context, s ConversationSnapshot) error {
	if err := ctx.Err(); err != nil {
		return st.failed(JsonFileIO, err)
	}
	path, mode, err := st.target()
	if err == nil {
		err = durable.Replace(path, chat.AppendPretty(nil, s.raw()), mode, durable.WithSync)
	}
	return st.failed(JsonFileIO, err)
}

// target gives the file behind a symbolic link, and the permission bits that it
// has or shall have.
func (st *JsonFileHistoryStore) target() (string, fs.FileMode, error) {
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
// another version is an error: every error is a *JsonFileHistoryError.
func (st *JsonFileHistoryStore) Load(ctx context.Context) (s ConversationSnapshot, found bool, err error) {
	if err := ctx.Err(); err != nil {
		return s, false, st.failed(JsonFileIO, err)
	}
	data, err := os.ReadFile(st.path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, false, nil
	}
	if err != nil {
		return s, false, st.failed(JsonFileIO, err)
	}
	raw, err := chat.Parse(data)
	if err != nil {
		return s, false, st.failed(JsonFileJSON, err)
	}
	return snapshotOf(raw), true, nil
}

func (st *JsonFileHistoryStore) failed(kind JsonFileErrorKind, err error) error {
	if err == nil {
		return nil
	}
	return &JsonFileHistoryError{Kind: kind, Path: st.path, Err: err}
}

// JsonFileErrorKind says at what a JsonFileHistoryStore failed.
type JsonFileErrorKind int

// What can fail.
const (
	JsonFileIO   JsonFileErrorKind = iota // reading or writing the file
	JsonFileJSON                          // making sense of what it holds
)

// JsonFileHistoryError is the error of a JsonFileHistoryStore. It wraps its
// cause: of kind JsonFileIO what the file system said, so that errors.Is finds
// fs.ErrPermission and fs.ErrNotExist; of kind JsonFileJSON a
// *SnapshotDecodeError.
type JsonFileHistoryError struct {
	Kind JsonFileErrorKind
	Path string // of the file
	Err  error
}

func (e *JsonFileHistoryError) Error() string {
	if e.Kind == JsonFileJSON {
		return "failed to encode/decode snapshot JSON: " + e.Path + ": " + e.Err.Error()
	}
	return "failed to read/write snapshot file: " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *JsonFileHistoryError) Unwrap() error { return e.Err }
