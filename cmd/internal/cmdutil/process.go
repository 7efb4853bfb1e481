package cmdutil

import (
	"errors"
	"os"
	"runtime"
	"syscall"
)

// Alive reports whether a process of this machine has the id.
func Alive(pid int) bool {
	p, err := os.FindProcess(pid)
	if err != nil || runtime.GOOS == "windows" {
		return err == nil
	}
	err = p.Signal(syscall.Signal(0))
	return err == nil || errors.Is(err, os.ErrPermission)
}
