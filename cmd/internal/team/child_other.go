//go:build !unix

package team

import (
	"os"
	"os/exec"
)

// apart leaves a command as it is: where there are no groups it is killed alone.
func apart(*exec.Cmd) {}

// killRest has nothing to kill.
func killRest(*exec.Cmd) {}

// endOf says how a process ended.
func endOf(s *os.ProcessState) ended { return ended{exit: s.ExitCode()} }
