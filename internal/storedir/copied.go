package storedir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tallylog/tally/internal/disk/durable"
	"github.com/tallylog/tally/internal/disk/statefile"
	"github.com/tallylog/tally/log"
)

const (
	copyingFile = "copying.json" // while the store is an unfinished copy
	movedFile   = "moved.json"   // once the store was moved
	copyVersion = 1              // of both formats
)

// copying is the content of copyingFile.
type copying struct {
	Version int    `json:"version"`
	From    string `json:"from"` // the place of the original
}

// moved is the content of movedFile.
type moved struct {
	Version int    `json:"version"`
	To      string `json:"to"` // the place of the store now
}

// Copying returns a *log.CopyingError if the store is an unfinished copy, or nil.
func Copying(dir string) error {
	var c copying
	err := readState(filepath.Join(dir, copyingFile), copyVersion, &c)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil && !IsDamaged(err):
		return err
	}
	return &log.CopyingError{From: c.From}
}

// MarkCopying marks a store as an unfinished copy of the store at a place.
func MarkCopying(dir, from string) error {
	return statefile.Write(filepath.Join(dir, copyingFile), copying{Version: copyVersion, From: from}, durable.WithSync)
}

// UnmarkCopying removes the mark of an unfinished copy. The caller has made the records of the copy durable.
func UnmarkCopying(dir string) error { return removeSynced(dir, copyingFile) }

// UnmarkMoved removes the mark of a store that was moved: it was moved back.
func UnmarkMoved(dir string) error { return removeSynced(dir, movedFile) }

func removeSynced(dir, name string) error {
	err := os.Remove(filepath.Join(dir, name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	return durable.SyncPath(dir)
}

// Moved returns a *log.MovedError if the store was moved, or nil.
func Moved(dir string) error {
	var m moved
	err := readState(filepath.Join(dir, movedFile), copyVersion, &m)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil && !IsDamaged(err):
		return err
	}
	return &log.MovedError{To: m.To}
}

// MarkMoved marks a store as moved to a place. The next owners refuse appends.
func MarkMoved(dir, to string) error {
	return statefile.Write(filepath.Join(dir, movedFile), moved{Version: copyVersion, To: to}, durable.WithSync)
}
