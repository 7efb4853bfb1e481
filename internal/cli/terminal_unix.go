//go:build unix

package cli

import (
	"os"
	"syscall"
)

// HasTerminal reports whether the process has a terminal that may send signals.
func HasTerminal() bool {
	f, err := os.OpenFile("/dev/tty", os.O_RDONLY|syscall.O_NOCTTY, 0)
	if err != nil {
		return false
	}
	f.Close()
	return true
}
