//go:build unix

package team

import (
	"context"
	"os"
	"os/exec"
	"syscall"
)

// apart starts a command in its own process group. A Ctrl-C then reaches this process alone, which tells the whole
// group to end.
func apart(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
}

// killRest kills the remaining processes in the group of a command that has ended.
func killRest(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // there may be none

// endOf returns how a process ended.
func endOf(s *os.ProcessState) ended {
	if w, ok := s.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return ended{exit: bySignal + int(w.Signal()), signal: w.Signal().String()}
	}
	return ended{exit: s.ExitCode()}
}

// shell returns a shell command. When ctx is done, its process group is killed.
func shell(ctx context.Context, command string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "sh", "-c", command)
	apart(cmd)
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	return cmd
}
