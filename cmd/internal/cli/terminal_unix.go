//go:build unix

package cli

import (
	"os"
)

// HasTerminal reports whether the process has a terminal that may send signals.
func HasTerminal() bool {
	f, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	f.Close()
	return true
}
