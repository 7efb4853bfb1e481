//go:build unix

package record

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
