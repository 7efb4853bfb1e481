package layouts

import "golang.org/x/sys/unix"

func renameNew(dir int, from string, other int, to string) error {
	return unix.RenameatxNp(dir, from, other, to, unix.RENAME_EXCL)
}

func exchange(dir int, a, b string) error {
	return unix.RenameatxNp(dir, a, dir, b, unix.RENAME_SWAP)
}
