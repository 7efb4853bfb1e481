//go:build unix

package tail

import (
	"errors"
	"io/fs"
	"syscall"
)

// openFlags opens a file without following a symbolic link, and a FIFO without waiting.
const openFlags = syscall.O_RDONLY | syscall.O_NOFOLLOW | syscall.O_NONBLOCK

// A node is the identity of a file on disk, or zero if the system does not report it.
type node struct{ dev, ino uint64 }

func nodeOf(info fs.FileInfo) node {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return node{uint64(st.Dev), st.Ino}
	}
	return node{}
}

// onDisk returns the size of a file on disk. It returns false if the system does not report it.
func onDisk(info fs.FileInfo) (int64, bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return st.Blocks * 512, true
}

func isNotDir(err error) bool { return errors.Is(err, syscall.ENOTDIR) }
