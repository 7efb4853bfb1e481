//go:build unix

package record

import (
	"os"
	"syscall"
)

// passed are the signals that are passed to the command. typed are those that a terminal sends to the whole group.
var (
	passed = []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2}
	typed  = []os.Signal{os.Interrupt, syscall.SIGQUIT}
)
