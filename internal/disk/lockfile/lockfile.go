// Package lockfile takes locks that last as long as a file is open. If a process is killed, the system releases its
// locks.
package lockfile

import (
	"errors"
	"os"
)

// ErrLocked reports that another process has the lock.
var ErrLocked = errors.New("locked by another process")

// Take takes the lock of a file, and creates the file if it is missing. It does not wait. Closing the file releases the
// lock.
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
