//go:build unix

package live

import (
	"os"
	"syscall"
)

// passed are the signals that are a command's; typed are those that a terminal sends to all
// of a group.
var (
	passed = []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2}
	typed  = []os.Signal{os.Interrupt, syscall.SIGQUIT}
)

// hasTerminal reports whether the process has a terminal that may send signals.
func hasTerminal() bool {
	f, err := os.OpenFile("/dev/tty", os.O_RDONLY|syscall.O_NOCTTY, 0)
	if err != nil {
		return false
	}
	f.Close()
	return true
}
