package storedir

import "golang.org/x/sys/unix"

// GroupSyncs reports whether a sync of the block files alone is enough on the file system of a directory. Tests with
// simulated power cuts show this for ext4 only.
func GroupSyncs(dir string) bool {
	var st unix.Statfs_t
	return unix.Statfs(dir, &st) == nil && st.Type == unix.EXT4_SUPER_MAGIC
}
