//go:build freebsd || netbsd || openbsd || dragonfly

package layouts

import "golang.org/x/sys/unix"

func renameNew(int, string, int, string) error { return unix.ENOSYS }

func exchange(int, string, string) error { return unix.ENOSYS }
