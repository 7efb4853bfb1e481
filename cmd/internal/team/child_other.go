//go:build !unix

package team

import (
	"context"
	"os"
	"os/exec"
)

// apart does nothing: without process groups, the command alone is killed.
func apart(*exec.Cmd) {}

// killRest does nothing.
func killRest(*exec.Cmd) {}

// endOf returns how a process ended.
func endOf(s *os.ProcessState) ended { return ended{exit: s.ExitCode()} }

// shell returns a shell command that is killed when ctx is done.
func shell(ctx context.Context, command string) *exec.Cmd {
	return exec.CommandContext(ctx, "cmd", "/C", command)
}
