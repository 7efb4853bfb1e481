package durable

import (
	"errors"
	"os"
)

// Zero overwrites the first size bytes of a file with zeros and syncs it. A file system that never writes in place, and
// a disk that remaps its blocks, may keep the old bytes.
func Zero(f *os.File, size int64) error {
	zeros := make([]byte, min(size, 1<<20))
	for at := int64(0); at < size; at += int64(len(zeros)) {
		if _, err := f.WriteAt(zeros[:min(size-at, int64(len(zeros)))], at); err != nil {
			return err
		}
	}
	return SyncFile(f)
}

// Erase overwrites a file with zeros and removes it. If it cannot be overwritten, it remains, so that a repetition finds
// it. The caller syncs the directory: see SyncPath.
func Erase(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil {
		err = Zero(f, info.Size())
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Remove(path)
}
