//go:build unix

package sealed

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// shared returns why a file is not private, or "" if it is.
func shared(info fs.FileInfo) string {
	if mode := info.Mode().Perm(); mode&^0o600 != 0 {
		return fmt.Sprintf("its mode is %#o: others may use it. It has to be 0600 or less", mode)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && int(stat.Uid) != os.Geteuid() {
		return fmt.Sprintf("it belongs to user %d, and this is user %d", stat.Uid, os.Geteuid())
	}
	return ""
}
