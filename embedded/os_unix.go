//go:build unix

package embedded

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// FreeBytes is what this user may still write to the file system of a directory.
func FreeBytes(dir string) (uint64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return uint64(st.Bavail) * uint64(st.Bsize), nil
}

// ownerOf gives the user to whom a file belongs, and whether that is this one, or root,
// who can do everything anyway.
func ownerOf(info fs.FileInfo) (user int, mine bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, true
	}
	return int(st.Uid), int(st.Uid) == os.Geteuid() || st.Uid == 0
}

// mayWrite asks the system whether this process may write to a directory.
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

// descriptors is how many files and connections this process may have open.
func descriptors() int {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return mostOpen
	}
	return int(min(uint64(r.Cur), 1<<20))
}
