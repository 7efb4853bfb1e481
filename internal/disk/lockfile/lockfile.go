// Package lockfile takes locks that last as long as a file is open: the system
// gives them up for a process that was killed.
package lockfile

import (
	"errors"
	"os"
)

// ErrLocked says that another process has the lock.
var ErrLocked = errors.New("locked by another process")

// Take takes the lock of a file, which is made if it is not there. It does not
// wait. Closing the file gives the lock up.
func Take(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := lockExclusive(f); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
