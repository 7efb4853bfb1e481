//go:build unix

package storedir

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// FreeBytes returns how many bytes this user may still write to the file system of a directory.
func FreeBytes(dir string) (uint64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return uint64(st.Bavail) * uint64(st.Bsize), nil
}

// ownerOf returns the id of a file's owner, and whether the file counts as this user's own. Files of root do, as root
// can read and change all files anyway.
func ownerOf(info fs.FileInfo) (user int, mine bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, true
	}
	return int(st.Uid), int(st.Uid) == os.Geteuid() || st.Uid == 0
}

// mayWrite returns the system's error if this process may not write to a directory.
func mayWrite(dir string) error {
	if err := unix.Access(dir, unix.W_OK); err != nil {
		return &fs.PathError{Op: "write to", Path: dir, Err: err}
	}
	return nil
}

func orReadOnly(dir string, err error) error {
	if errors.Is(err, unix.EROFS) {
		return &ReadOnlyError{Dir: dir}
	}
	return err
}
