package tail

import (
	"os"

	"golang.org/x/sys/unix"
)

// bornOf returns the creation time of a file, in ns since 1970, or 0 if the file system has none. It distinguishes a
// file from a later one with the same node.
func bornOf(f *os.File) int64 {
	var st unix.Statx_t
	if err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_BTIME, &st); err != nil || st.Mask&unix.STATX_BTIME == 0 {
		return 0
	}
	return st.Btime.Sec*1e9 + int64(st.Btime.Nsec)
}
