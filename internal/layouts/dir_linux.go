package layouts

import "golang.org/x/sys/unix"

func renameNew(dir int, from string, other int, to string) error {
	return unix.Renameat2(dir, from, other, to, unix.RENAME_NOREPLACE)
}

func exchange(dir int, a, b string) error {
	return unix.Renameat2(dir, a, dir, b, unix.RENAME_EXCHANGE)
}
