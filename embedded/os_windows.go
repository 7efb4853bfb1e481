package embedded

import (
	"io/fs"

	"golang.org/x/sys/windows"
)

// FreeBytes is what this user may still write to the volume of a directory.
func FreeBytes(dir string) (free uint64, err error) {
	name, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return 0, err
	}
	err = windows.GetDiskFreeSpaceEx(name, &free, nil, nil)
	return free, err
}

// ownerOf takes every file for this user's: who may do what stands in access lists here,
// which a folder of a user's has from the one above it.
func ownerOf(fs.FileInfo) (user int, mine bool) { return 0, true }

func mayWrite(string) error { return nil }

func orReadOnly(_ string, err error) error { return err }

// descriptors is how many files and connections this process may have open. The system
// has no bound.
func descriptors() int { return mostOpen + mostAside }
