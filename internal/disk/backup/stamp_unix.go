//go:build unix

package backup

import (
	"os"

	"golang.org/x/sys/unix"
)

// stamp returns the stamp of an open file. Its time is the inode's change time, which programs cannot set.
func stamp(f *os.File) (Stamp, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return Stamp{}, &os.PathError{Op: "stat", Path: f.Name(), Err: err}
	}
	return Stamp{Inode: st.Ino, Size: st.Size, Changed: st.Ctim.Nano()}, nil
}
