//go:build !unix

package team

import (
	"context"
	"os"
	"os/exec"
)

// apart leaves a command as it is: where there are no groups it is killed alone.
func apart(*exec.Cmd) {}

// killRest has nothing to kill.
func killRest(*exec.Cmd) {}

// endOf says how a process ended.
func endOf(s *os.ProcessState) ended { return ended{exit: s.ExitCode()} }

// shell is a command that is ended when its time is over.
func shell(ctx context.Context, command string) *exec.Cmd {
	return exec.CommandContext(ctx, "cmd", "/C", command)
}
