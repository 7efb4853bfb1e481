//go:build unix

package embedded

import "golang.org/x/sys/unix"

// descriptorLimit returns how many files and connections this process may have open.
func descriptorLimit() int {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return maxOpen
	}
	return int(min(uint64(r.Cur), 1<<20))
}
