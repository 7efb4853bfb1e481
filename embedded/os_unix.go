//go:build unix

package embedded

import "golang.org/x/sys/unix"

// FreeBytes is what this user may still write to the file system of a directory.
func FreeBytes(dir string) (uint64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return uint64(st.Bavail) * uint64(st.Bsize), nil
}
