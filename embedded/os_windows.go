package embedded

import "golang.org/x/sys/windows"

// FreeBytes is what this user may still write to the volume of a directory.
func FreeBytes(dir string) (free uint64, err error) {
	name, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return 0, err
	}
	err = windows.GetDiskFreeSpaceEx(name, &free, nil, nil)
	return free, err
}
